"""`[tool.dp2ddp.COMMAND]` in pyproject.toml."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main
from dp2ddp.cli._options import Option
from dp2ddp.commands import COMMANDS
from dp2ddp.source import pyproject

SCRIPT = """\
import torch
model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
model(torch.ones(4, 2)).sum().backward()
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_a_table_gives_a_command_other_defaults() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.convert]\nstyle = "idiomatic"\n')

    assert "(DDP704)" in run("convert", "train.py", "-o", "-").stderr  # of the idiomatic style


def test_the_command_line_counts_more() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.convert]\nstyle = "idiomatic"\n')

    assert "WholeBatch" in run("convert", "train.py", "-o", "-", "--style", "exact").stdout


def test_the_check_takes_its_format_from_there() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.check]\nformat = "json"\n')

    assert run("check").stdout.startswith("{")


@pytest.mark.parametrize("table", ['stlye = "idiomatic"', 'nothing = "idiomatic"'])
def test_an_option_that_is_none_is_an_error(table: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.dp2ddp.convert]\n{table}\n")

    result = run("convert", "train.py", "--diff")

    assert result.exit_code == 3
    assert f"dp2ddp convert has no option {table.partition(' ')[0]!r}" in result.stderr
    assert ("did you mean style?" in result.stderr) == table.startswith("stlye")


def test_a_wrong_value_is_a_usage_error() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.convert]\nstyle = "pretty"\n')

    assert run("convert", "train.py", "--diff").exit_code == 2


@pytest.mark.parametrize(
    ("command", "key", "values", "words"),
    [
        ("launch", "gpus", ("[4]", "{a=1}", "2026-01-01", "4.5", "true"), "a whole number"),
        ("launch", "restarts", ("true",), "a whole number"),
        ("launch", "time", ("12:00:00", "60", "[1]"), "a text, in quotes"),
        ("doctor", "json", ("1", '"yes"'), "true or false"),
        ("doctor", "timeout", ("[1]", "true"), "a number of seconds"),
        ("convert", "json", ("1.5",), "true or false"),
        ("convert", "accept", ("true", '"DDP906:5"', "[1]"), "a list of texts"),
        ("convert", "select", ('["DDP5"]',), "a text, in quotes"),
        ("verify", "devices", ("2.5", "true", "[2, 3]"), 'a whole number, or a text like "2,3"'),
        ("check", "baseline", ("1",), "the name of a file"),
    ],
)
def test_a_value_of_another_kind_is_an_error_that_names_the_key(
    command: str, key: str, values: tuple[str, ...], words: str
) -> None:
    for value in values:
        Path("pyproject.toml").write_text(f"[tool.dp2ddp.{command}]\n{key} = {value}\n")
        result = run(command, *(["train.py"] if command != "doctor" else []))

        path = Path("pyproject.toml").resolve()
        assert result.exit_code == 3, value
        assert (result.stdout, result.stderr) == (
            "",
            f"dp2ddp: {path}: [tool.dp2ddp.{command}] {key} is {words}\n",
        )


@pytest.mark.parametrize(
    ("command", "table"),
    [
        ("convert", 'diff = true\naccept = []\nselect = "DDP5"'),
        ("verify", "devices = 2\ntimeout = 3"),
        ("verify", 'devices = "2,3"\ntimeout = 3.5'),
        ("launch", 'gpus = 4\ntime = "12:00:00"\nimage = "a"'),
    ],
)
def test_values_of_the_right_kind_are_taken(command: str, table: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.dp2ddp.{command}]\n{table}\n")

    assert run(command, "--help").exit_code == 0


# What a stranger's pyproject.toml may say. A new option: does it overwrite, write, open or start anything? Then it is
# `typed` where it is declared; else it stands here.
FROM_FILE = {
    "convert": {
        *("diff", "check", "json", "style"),
        *("select", "ignore", "accept", "one-file", "import"),
    },
    "run": {"mode", "devices", "steps", "timeout", "accept", "virtual"},
    "verify": {"devices", "aligned", "steps", "only-gradients", "timeout", "accept", "json"},
    "launch": {"gpus", "nodes", "restarts", "time", "cpus", "image"},
    "bench": {"devices", "steps", "warm-up", "rounds", "compare", "timeout", "accept", "virtual", "json"},
    "check": {"select", "ignore", "format", "baseline"},
    "doctor": {"json", "timeout"},
}


def options_of(name: str) -> dict[str, Option]:
    command: click.Command = importlib.import_module(f"dp2ddp.cli.{name}").command
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert all(isinstance(option, Option) for option in options), "one that is not declared by dp2ddp.options"
    return {max(option.opts, key=len).lstrip("-"): option for option in options if isinstance(option, Option)}


@pytest.mark.parametrize("name", COMMANDS)
def test_of_every_option_it_is_decided_whether_the_file_may_set_it(name: str) -> None:
    allowed = {key for key, option in options_of(name).items() if not option.typed}
    assert allowed == FROM_FILE.get(name, set())


REFUSED = [
    (name, key, option) for name in COMMANDS for key, option in options_of(name).items() if option.typed
]


@pytest.mark.parametrize(
    ("name", "key", "option"), REFUSED, ids=[f"{name}-{key}" for name, key, _ in REFUSED]
)
def test_what_writes_or_starts_is_refused_in_one_line(name: str, key: str, option: Option) -> None:
    value = "true" if option.is_flag else '"victim.txt"'
    Path("victim.txt").write_text("mine")
    Path("pyproject.toml").write_text(f"[tool.dp2ddp.{name}]\n{key} = {value}\n")
    before = sorted(os.listdir())

    result = run(name, *(["train.py"] if name not in ("check", "rules") else []))

    assert result.exit_code == 3, result.output
    assert result.stdout == ""
    assert result.stderr.startswith(
        f"dp2ddp: {Path('pyproject.toml').resolve()}: [tool.dp2ddp.{name}] {key}: -"
    )
    assert "command line only; take it out of this file\n" in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(os.listdir()) == before
    assert Path("victim.txt").read_text() == "mine"
    assert Path("train.py").read_text() == SCRIPT


def test_a_short_spelling_is_the_same_option() -> None:
    Path("pyproject.toml").write_text('[tool.dp2ddp.convert]\no = "train.py"\n')

    assert "--output says where to write" in run("convert", "train.py").stderr


@pytest.mark.parametrize("table", ["tool.dp2ddp", "tool.dp2ddp.check"])
@pytest.mark.parametrize("way", ["above", "absolute", "link"])
def test_a_path_in_the_file_stays_below_its_folder(table: str, way: str, tmp_path: Path) -> None:
    Path("project").mkdir()
    os.chdir("project")
    os.symlink("..", "out")
    Path("train.py").write_text(SCRIPT)
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    path = {"above": "../victim.txt", "absolute": str(victim), "link": "out/victim.txt"}[way]
    Path("pyproject.toml").write_text(f'[{table}]\nbaseline = "{path}"\n')

    result = run("check", "--write-baseline")

    assert result.exit_code == 3
    assert "leads out of the folder of this file" in result.stderr
    assert victim.read_text() == "mine"


def test_a_path_is_named_from_the_folder_of_the_file_on() -> None:
    Path("src").mkdir()
    Path("pyproject.toml").write_text('[tool.dp2ddp.check]\nbaseline = "known.json"\n')
    os.chdir("src")

    assert run("check", "--write-baseline", "..").exit_code == 0
    assert Path("../known.json").exists()


class TestSearch:
    """Where the search for the file ends."""

    TABLE = '[tool.dp2ddp.convert]\nstyle = "pretty"\n'  # a usage error, where it is read

    def is_read(self) -> bool:
        return "pretty" in run("convert", "train.py", "--diff").stderr

    @pytest.fixture(autouse=True)
    def _below(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text(self.TABLE)
        (tmp_path / "outer/inner").mkdir(parents=True)
        (tmp_path / "outer/inner/train.py").write_text(SCRIPT)
        os.chdir("outer/inner")

    def test_it_goes_upwards(self) -> None:
        assert self.is_read()

    @pytest.mark.parametrize("place", [".", ".."])
    @pytest.mark.parametrize("kind", ["folder", "file"])  # of a worktree, a submodule
    def test_it_ends_at_the_top_of_the_repository(self, place: str, kind: str) -> None:
        git = Path(place, ".git")
        git.mkdir() if kind == "folder" else git.write_text("gitdir: elsewhere\n")

        assert not self.is_read()

    def test_the_top_of_the_repository_itself_counts(self) -> None:
        Path("../../.git").mkdir()

        assert self.is_read()

    def test_it_ends_at_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(Path("..").resolve()))

        assert not self.is_read()

    @pytest.mark.parametrize("command", ["convert", "check"])
    def test_a_file_of_another_user_is_not_read_and_that_is_said_once(
        self, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        monkeypatch.setattr(pyproject, "is_of_another_user", is_others)

        result = run(command, "train.py", *(["--diff"] if command == "convert" else []))

        assert "pretty" not in result.stderr
        assert result.exit_code == 0, result.output
        assert result.stderr.count("is another user's, so its [tool.dp2ddp] is not read") == 1

    def test_who_owns_it_is_asked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(pyproject.os, "stat", lambda path: owned_by(1000))
        answers = {}
        for user in (1000, 1001):
            monkeypatch.setattr(pyproject.os, "geteuid", lambda user=user: user)
            answers[user] = pyproject.is_of_another_user("pyproject.toml")

        assert answers == {1000: False, 1001: True}


def is_others(path: str) -> bool:
    return True


def owned_by(user: int) -> os.stat_result:
    return os.stat_result((0o100644, 1, 1, 1, user, 1, 0, 0, 0, 0))
