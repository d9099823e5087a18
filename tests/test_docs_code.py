"""Code in README and docs: what can be run is run, the rest is at least what it says it is.

A block says in its fence what it is. `console`: each `$` line is run, in the page's order, in a folder of its own, and
says what the page shows (`...`: any lines). `diff` with a file name: what `dp2ddp convert --diff` prints for that
script. Both find their scripts in tests/how_to/NAME, for a part or a page of that name; `pytest --update` writes the
diffs anew.
`sh`: bash reads it, and every program of ours that it names takes these options. So do commands in the text. `python`,
`json`, `toml`, `yaml`: they parse, and settings of ours are known.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import dp2ddp
from dp2ddp.cli import COMMANDS
from dp2ddp.cli._defaults import read_defaults
from dp2ddp.options import VerifyOptions
from dp2ddp.review.settings import read_settings
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked
from tests.mutations.faults import FAULTS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SUBJECTS = ROOT / "tests" / "how_to"
HISTORY = {DOCS / "changelog.md"}  # it speaks of what was there
# by the site's build, of what has tests of its own
MADE = {DOCS / "causes.md", DOCS / "idioms.md", *(DOCS / "rules").glob("*.md")}
PAGES = sorted({ROOT / "README.md", *DOCS.rglob("*.md")} - HISTORY - MADE)
LEFT_TO_ALL = {"resuming"}  # whose commands train for half a minute
# tests of their own hold the diffs of these: tests/living, tests/test_writing_a_rule.py
OTHER_DIFFS = {DOCS / "living_with_it.md", DOCS / "contributing.md"}

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"^## (.*)$", re.MULTILINE)
OF_FILE = re.compile(r"--- (\S+)\n")
OURS = re.compile(r"^(?:.*run: | *- )?(dp2ddp [a-z].*)$", re.MULTILINE)  # steps of a CI
INLINE = re.compile(r"`(dp2ddp [^`]+)`")


class Block(NamedTuple):
    """A fenced block: its language, its text, and where it stands."""

    page: Path
    part: str
    language: str
    text: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def subject(self) -> Path:
        """The folder that it speaks of; the page itself, if it begins with nothing."""
        if self.page.name == "README.md":
            return ROOT / "examples" / "cifar_bn"
        folders = (SUBJECTS / name for name in (self.part, self.page.stem) if name)
        return next((folder for folder in folders if folder.is_dir()), self.page)


class Shown(NamedTuple):
    """A command of a page and the lines that it shows below."""

    command: str
    lines: list[str]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        titles = PART.findall(FENCED.sub("", text[: found.start()]))
        part = titles[-1].lower().replace(" ", "_") if titles else ""
        yield Block(page, part, found[2], textwrap.dedent(found[3]) if found[1] else found[3], line)


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def parameters(*languages: str) -> list[object]:
    return [pytest.param(block, id=block.place) for block in all_blocks(*languages)]


# --- what a block may be


def test_every_block_says_what_it_is() -> None:
    known = {"console", "diff", "json", "python", "sh", "toml", "yaml"}
    known |= {"lisp", "lua", "vim", ""}  # settings of editors; a terminal's text, a drawing
    assert [block.place for page in PAGES for block in blocks(page) if block.language not in known] == []
    indented = re.compile(r"^(?:\n|\A)    \S", re.MULTILINE)
    bare = [page.name for page in PAGES if indented.search(FENCED.sub("", page.read_text(encoding="utf-8")))]
    assert bare == [], "code without a fence"


def test_every_script_of_the_pages_is_shown() -> None:
    assert {block.subject for block in all_blocks("diff", "console")} >= set(SUBJECTS.iterdir())


@pytest.mark.parametrize("block", parameters("python"))
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.place, "exec", flags=ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("block", parameters("json", "toml", "yaml"))
def test_data_parse_and_settings_are_known(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block.language == "json":
        json.loads(block.text)
    elif block.language == "yaml":
        yaml.safe_load(block.text)
    else:
        table = tomllib.loads(block.text).get("tool", {}).get("dp2ddp", {})
        (tmp_path / "pyproject.toml").write_text(block.text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        read_settings(tmp_path, COMMANDS)
        for name in table.keys() & COMMANDS.keys():
            assert read_defaults(COMMANDS, name, pytest.fail)


def named(page: str, behind: str, before: str) -> set[str]:
    """What stands in backticks in a part of a page."""
    (part,) = re.findall(re.escape(behind) + r"(.*?)" + re.escape(before), (DOCS / page).read_text("utf-8"))
    return set(re.findall(r"`([\w-]+)`", part))


def test_pages_list_the_options_that_there_are() -> None:
    commands = [importlib.import_module(f"dp2ddp.cli.{name}").command for name in COMMANDS]
    typed = {one.opts[-1] for command in commands for one in command.params if getattr(one, "typed", "")}
    assert named("check.md", "counts on the command line only", "in the file it is an error") == typed
    arguments = {one.name for one in fields(VerifyOptions)} - {"script", "as_module", "progress", "accept"}
    assert named("verify.md", "The arguments are options of the command:", "It returns") == arguments


# --- commands that are only shown


def command_lines(text: str) -> Iterator[str]:
    """The commands of a shell's text, one a line, without comments."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r" && | \|\| | > ", line):
            if shlex.split(part, comments=True):
                yield part.strip()


def named_commands() -> Iterator[tuple[str, str]]:
    """Where, and what: every command of a shell, and every one of ours in other blocks and in the text."""
    for page in PAGES:
        for block in blocks(page):
            for command in commands_of(block):
                yield block.place, command
        for found in INLINE.finditer(FENCED.sub("", page.read_text(encoding="utf-8"))):
            yield str(page.relative_to(ROOT)), found[1]


def commands_of(block: Block) -> Iterator[str]:
    if block.language == "sh":
        yield from command_lines(block.text)
    elif block.language == "console":
        for one in shown(block):
            yield from command_lines(one.command)
    else:
        yield from OURS.findall(block.text)


@pytest.mark.parametrize("block", parameters("sh"))
def test_bash_reads_it(block: Block) -> None:
    result = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_command_takes_the_options_that_it_is_given() -> None:
    wrong = []
    for place, command in named_commands():
        try:
            check_command(command)
        except (AssertionError, click.ClickException, SystemExit) as error:
            wrong.append((place, command, str(error)))
    assert wrong == []


def check_command(command: str) -> None:
    """Raise for a command whose program does not take what stands behind it, or whose file is not there."""
    match shlex.split(command, comments=True):
        case ["dp2ddp", *words]:
            check_words(words)
        case ["python" | "python3", "-m", "dp2ddp", *words]:
            check_words(words)
        case ["python" | "python3", "-m", module, *_]:
            assert importlib.util.find_spec(module), f"no module {module}"
        case ["python" | "python3", path, *_] if re.match(r"(benchmarks|docs|examples|tests)/", path):
            assert (ROOT / path).is_file(), f"no file {path}"
        case ["pytest", *words]:
            paths = [word for word in words if word.startswith("tests/") and word.islower()]
            assert all((ROOT / path.partition("::")[0]).exists() for path in paths), f"not all there: {paths}"
        case ["torchrun", *words]:
            check_torchrun(words)


def check_words(words: list[str]) -> None:
    """`dp2ddp WORDS`: by the commands' own parsers, and without looking for files."""
    if not words or words[0].startswith("-") or words[0] in ("...", "COMMAND"):
        return
    assert words[0] in COMMANDS, f"no command {words[0]}"
    command: click.Command = importlib.import_module(f"dp2ddp.cli.{words[0]}").command
    context = click.Context(command, info_name=words[0])
    given = [word for word in words[1:] if word != "..."]
    _, rest, _ = command.make_parser(context).parse_args(list(given))
    assert not rest, f"not taken: {rest}"
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and isinstance(parameter, click.Option):
            for value in values_of(parameter, given):
                assert value.isupper() or value in parameter.type.choices, f"{parameter.opts}: {value}"


def values_of(option: click.Option, words: list[str]) -> list[str]:
    return [after for word, after in zip(words, words[1:], strict=False) if word in option.opts]


def check_torchrun(words: list[str]) -> None:
    from torch.distributed.run import get_args_parser  # a second

    get_args_parser().parse_args(words)


@pytest.mark.parametrize(
    "command",
    [
        "dp2ddp verfy train.py",
        "dp2ddp verify train.py --step 20",
        "dp2ddp launch train.py --on slrm",
        "dp2ddp convert train.py other.py",
        "python3 tests/nothing.py",
        "python -m dp2ddp.nothing",
        "torchrun --standalone --ranks 2 train.py",
    ],
)
def test_a_wrong_command_is_found(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((AssertionError, click.ClickException, SystemExit)):
        check_command(command)


# --- conversions


@pytest.mark.parametrize("block", parameters("diff"))
def test_a_diff_is_what_convert_prints_today(block: Block, update: bool) -> None:
    if block.page in OTHER_DIFFS:
        return
    named = OF_FILE.match(block.text)
    assert named, f"{block.place}: a diff of which file?"
    today = diff_of(block.subject / named[1])
    if update:
        text = block.page.read_text(encoding="utf-8")
        block.page.write_text(
            text.replace(f"```diff\n{block.text}```", f"```diff\n{today}```"), encoding="utf-8"
        )
    else:
        assert without_blanks(block.text) == today, "run `pytest --update tests/test_docs_code.py`"


def diff_of(script: Path) -> str:
    conversion = dp2ddp.convert(script)
    assert not conversion.hazards
    return without_blanks(conversion.diff().replace(str(script), script.name))


def without_blanks(text: str) -> str:
    """Without blanks at the ends of lines, which editors take away."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"


# --- differences


ROW = re.compile(r"^\|[^|]+\| ([^|]+) \| (\w+) \| \[([\w-]+)\]", re.MULTILINE)


def test_differences_of_the_page_are_those_of_planted_faults() -> None:
    planted = {fault.name: fault for fault in FAULTS}
    rows = ROW.findall((DOCS / "reports.md").read_text(encoding="utf-8"))
    assert len(rows) > 10
    for name, step, cause in rows:
        fault = planted[name]
        assert not fault.missed
        assert step == ("none" if fault.step is None else str(fault.step)), name
        assert cause in fault.causes.split("|"), name


# --- commands that are run


def shown(block: Block) -> Iterator[Shown]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        yield Shown(command, lines)


@pytest.mark.torchrun
@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(subject, id=subject.stem, marks=[pytest.mark.slow] * (subject.stem in LEFT_TO_ALL))
        for subject in dict.fromkeys(block.subject for block in all_blocks("console"))
    ],
)
def test_the_commands_say_what_the_page_shows(subject: Path, tmp_path: Path, server: Server) -> None:
    folder = tmp_path
    if subject.is_dir():
        shutil.copytree(subject, folder, dirs_exist_ok=True)
    printed_for: dict[str, str] = {}  # figures: the same one on the page is the same one here
    for command, lines in (
        one for block in all_blocks("console") if block.subject == subject for one in shown(block)
    ):
        if command.startswith("cd "):
            folder = folder / shlex.split(command)[1]
            continue
        printed = stdout_of(command, folder, server)
        found = pattern_of(lines).fullmatch(printed)
        assert found, f"$ {command}\n{printed}"
        for figure, today in zip(figures(lines), found.groups(), strict=True):
            assert printed_for.setdefault(figure, today) == today, f"$ {command}\n{printed}"


def stdout_of(command: str, folder: Path, server: Server) -> str:
    """Of a command of ours in this process; a shell runs any other, as torchrun."""
    if command.startswith("dp2ddp "):
        said = forked(server, folder, *shlex.split(command)[1:])
        assert said.exit_code in (0, 1), said.stderr  # 1: they differ
        return said.stdout
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == command.startswith("diff "), result.stderr
    return result.stdout


FRACTION = re.compile(r"\d+\.\d+")


def figures(lines: list[str]) -> list[str]:
    return FRACTION.findall("\n".join(lines))


def pattern_of(lines: list[str]) -> re.Pattern[str]:
    """What these lines match: `...` any lines; a fraction any other (losses round otherwise on other processors)."""
    parts = (
        r"(?:.*\n)*" if line == "..." else FRACTION.pattern.join(map(re.escape, FRACTION.split(line))) + "\n"
        for line in lines
    )
    return re.compile("".join(part.replace(FRACTION.pattern, f"({FRACTION.pattern})") for part in parts))


def test_the_commands_of_the_tutorial_are_seen() -> None:
    commands = [one.command.split() for block in blocks(DOCS / "tutorial.md") for one in shown(block)]
    ours = [words[1] for words in commands if words[0] == "dp2ddp"]
    assert ours == ["new", "run", "check", "convert", "verify", "verify"]


def test_a_pattern_can_fail() -> None:
    pattern = pattern_of(["a", "...", "b 1.5%"])
    found = pattern.fullmatch("a\nx\ny\nb 2.75%\n")
    assert found
    assert found.groups() == ("2.75",)
    assert not pattern.fullmatch("a\nx\ny\nc 1.5%\n")
    assert not pattern.fullmatch("a\nx\ny\nb 1.5\n")
