"""A person answers a hazard: by a comment, or by --accept; it stays in the report, and verify judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked
from tests.cli.scripts import TRAIN
from tests.codemod.scripts import converted
from tests.ipynb import notebook

HEAD = "import os\nimport torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
FORKS = HEAD + "if net is None:\n    child = os.fork()\n"  # DDP906, at line 5


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def written(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def accepted(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["accepted"]
    return found


class TestOption:
    def test_it_answers_the_hazard_of_its_line(self, tmp_path: Path) -> None:
        script = written(tmp_path, FORKS)
        assert command("convert", script, "--diff").exit_code == 1

        result = command("convert", script, "--accept", "DDP906:5 never runs")

        assert result.exit_code == 0
        assert f"accepted  {script}:5:13: os.fork() makes the ranks differ" in result.stdout
        assert "(DDP906), by --accept: never runs" in result.stdout
        assert "1 hazard accepted" in result.stdout
        assert "start it with" in result.stdout
        assert "os.fork()" in (tmp_path / "train_ddp.py").read_text()

    def test_json_says_who_and_why(self, tmp_path: Path) -> None:
        script = written(tmp_path, FORKS)

        result = command("convert", script, "--json", "--accept", "ddp906:5 because", "-o", tmp_path / "x.py")

        (one,) = accepted(result)
        assert (one["code"], one["line"], one["by"], one["reason"]) == ("DDP906", 5, "option", "because")
        assert json.loads(result.stdout)["hazards"] == []

    def test_others_stay_open(self, tmp_path: Path) -> None:
        script = written(tmp_path, FORKS + "os._exit(0)\n")

        result = command("convert", script, "--accept", "DDP906:5")

        assert result.exit_code == 1
        assert "1 hazard open, 1 hazard accepted" in result.stdout
        assert "--accept DDP906:6" in result.stdout  # how to answer the other

        assert (
            command("convert", script, "--force", "--accept", "DDP906:5", "--accept", "DDP906:6").exit_code
            == 0
        )

    @pytest.mark.parametrize("wrong", ["DDP906:4", "DDP908:5", "DDP906:other.py:5", "DDP906:2:5"])
    def test_one_that_answers_nothing_is_an_error_of_usage(self, tmp_path: Path, wrong: str) -> None:
        script = written(tmp_path, FORKS)

        for arguments in (["convert", script], ["run", "--mode", "ddp", script], ["verify", script]):
            result = command(*arguments, "--accept", wrong)

            assert result.exit_code == 2
            assert f"--accept {wrong}: no hazard there; open ones: DDP906:5" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["train.py"]

    def test_one_without_a_script_to_convert_answers_nothing(self, tmp_path: Path) -> None:
        result = command("convert", written(tmp_path, "print(1)\n"), "--accept", "DDP906:5")

        assert result.exit_code == 2
        assert "none is open at all" in result.stderr

    @pytest.mark.parametrize("wrong", ["DDP906", "5", "DDP906:", "DDP906:five"])
    def test_what_is_none_is_refused(self, tmp_path: Path, wrong: str) -> None:
        result = command("convert", written(tmp_path, FORKS), "--accept", wrong)

        assert result.exit_code == 2
        assert "CODE:LINE, CODE:FILE:LINE" in result.stderr

    def test_a_port_of_the_user_s_own_has_no_hazards_to_answer(self, tmp_path: Path) -> None:
        script = written(tmp_path, FORKS)

        result = command("verify", script, "--converted", script, "--accept", "DDP906:5")

        assert result.exit_code == 2
        assert "not with --converted" in result.stderr

    @pytest.mark.parametrize("where", ["lib/forks.py", "forks.py", "./lib/forks.py"])
    def test_in_a_project_it_names_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "lib").mkdir()
        written(tmp_path / "lib", "")
        written(tmp_path / "lib", "import os\ndef fork():\n    os.fork()\n", "forks.py")
        written(tmp_path, HEAD + "from lib import forks\nforks.fork()\n")
        assert "--accept DDP906:lib/forks.py:3" in command("convert", "train.py", "--diff").stderr

        assert command("convert", "train.py", "--accept", "DDP906:3").exit_code == 2
        result = command("convert", "train.py", "-o", "out", "--accept", f"DDP906:{where}:3")

        assert result.exit_code == 0
        assert "accepted  lib/forks.py:3:5" in result.stdout

    def test_in_a_notebook_it_names_the_cell(self, tmp_path: Path) -> None:
        path = notebook(tmp_path, HEAD, "x = 1\n%run more.py")
        assert "--accept DDP911:2:2" in command("convert", path, "--diff").stderr

        result = command("convert", path, "--accept", "DDP911:2:2")

        assert result.exit_code == 0
        assert f"accepted  {path}, cell 2, line 2: `%run more.py`" in result.stdout


class TestComment:
    @pytest.mark.parametrize(
        "lines",
        [
            "child = os.fork()  # dp2ddp: accept[DDP906] a picture",
            "child = os.fork()  #dp2ddp:accept[DDP908,DDP906]: a picture",
            "# dp2ddp: accept[DDP906] a picture\nchild = os.fork()",
            "# dp2ddp: accept[DDP906] a picture\n# and more words\nchild = os.fork()",
            "child = (  # dp2ddp: accept[DDP906] a picture\n    os.fork()\n)",
            "# dp2ddp: accept[DDP906] a picture\nchild = (\n    os.fork()\n)",
            "child = (\n    os.fork()\n)  # dp2ddp: accept[DDP906] a picture",
            "child = os.fork()  # dp2ddp: ignore[DDP9] a picture",
        ],
    )
    def test_it_speaks_for_its_statement(self, tmp_path: Path, lines: str) -> None:
        result = command("convert", written(tmp_path, HEAD + lines + "\n"), "--json")

        assert result.exit_code == 0
        (one,) = accepted(result)
        assert (one["code"], one["by"], one["reason"]) == ("DDP906", "comment", "a picture")

    @pytest.mark.parametrize(
        "lines",
        [
            "child = os.fork()  # dp2ddp: accept[DDP9]",  # a family: it would answer what nobody has looked at
            "child = os.fork()  # dp2ddp: accept",
            "child = os.fork()  # dp2ddp: accept[DDP908]",
            "# dp2ddp: accept[DDP906]\n\nchild = os.fork()",
            "x = 1  # dp2ddp: accept[DDP906]\nchild = os.fork()",
            "child = os.fork()\nx = 1  # dp2ddp: accept[DDP906]",
            "if x:  # dp2ddp: accept[DDP906]\n    child = os.fork()",
        ],
    )
    def test_another_does_not(self, tmp_path: Path, lines: str) -> None:
        result = command("convert", written(tmp_path, HEAD + "x = 0\n" + lines + "\n"))

        assert result.exit_code == 1
        assert "accepts no hazard" in result.stdout

    def test_one_that_is_stale_is_a_note(self, tmp_path: Path) -> None:
        script = written(tmp_path, HEAD + "x = 1  # dp2ddp: accept[DDP906] it was os.fork()\n")

        result = command("convert", script)

        assert result.exit_code == 0
        assert (
            "note    line 4:  accepts no hazard: there is none of this code here (any more)" in result.stdout
        )

    def test_a_converted_script_keeps_it_without_a_word(self, tmp_path: Path) -> None:
        script = written(tmp_path, HEAD + "child = os.fork()  # dp2ddp: accept[DDP906]\n")
        command("convert", script)

        result = command("convert", tmp_path / "train_ddp.py")

        assert (result.exit_code, "accepts" in result.stdout) == (0, False)

    def test_an_edit_is_left_out_by_ignore_alone(self, tmp_path: Path) -> None:
        text = HEAD + "os.mkdir('a')  # dp2ddp: {}[DDP503]\n"

        assert (
            "run_on_rank0(os.mkdir"
            in command("convert", written(tmp_path, text.format("accept")), "--diff").stdout
        )
        assert (
            "run_on_rank0(os.mkdir"
            not in command("convert", written(tmp_path, text.format("ignore")), "--diff").stdout
        )


@pytest.mark.torchrun
def test_verify_judges_what_was_accepted(tmp_path: Path, server: Server) -> None:
    never = "import os\nif optimizer is None:\n    os.fork()  # dp2ddp: accept[DDP906] never\n"
    written(tmp_path, TRAIN + never + "if optimizer is None:\n    os.fork()\n")
    assert forked(server, tmp_path, "verify", "train.py").exit_code == 1

    result = forked(
        server, tmp_path, "verify", "train.py", "--json", "--accept", f"DDP906:{TRAIN.count(chr(10)) + 5}"
    )

    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["same"]
    assert [one["by"] for one in document["accepted"]] == ["comment", "option"]
    assert "by a comment: never" in document["surroundings"]["accepted hazards"]


@pytest.mark.parametrize(
    ("line", "hazards"),
    [
        ("#dp2ddp:accept[ddp906]harmless", 0),
        ("# dp2ddp: accept[DDP906]", 0),
        ("note = '# dp2ddp: accept[DDP906]'", 1),
        ("note = f'# dp2ddp: accept[DDP906] {1}'", 1),
    ],
)
def test_a_comment_answers_in_either_case_and_a_text_never(line: str, hazards: int) -> None:
    text = f"import torch\nnet = torch.nn.DataParallel(Net())\n{line}\nname = breakpoint()\n"
    assert len(converted(text).hazards) == hazards
