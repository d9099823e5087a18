"""The answer that comes before the command line: the same words as the command's, and only where these are all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.review.first_look import finds_nothing

HIT = "import torch\nmodel = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/plain.py").write_text("import os\nprint('parallel lines, evenly distributed')\n")


@pytest.mark.parametrize("arguments", [[], ["src"], ["src", "."]], ids=str)
def test_it_says_what_the_command_says(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("src/other.ipynb").write_text("{}")

    assert finds_nothing(arguments)

    command = CliRunner().invoke(main, ["check", *arguments])
    assert capsys.readouterr().out == command.stdout
    assert command.exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [["src/plain.py"], ["src", "--json"], ["--help"], ["nowhere"], ["-v"]],
    ids=["a script may import", "an option", "help", "not there", "a folder named like an option"],
)
def test_everything_else_is_left_to_the_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("-v").mkdir()

    assert not finds_nothing(arguments)
    assert capsys.readouterr().out == ""


def test_a_hit_is_left_to_the_command() -> None:
    Path("src/train.py").write_text(HIT)

    assert not finds_nothing([])


@pytest.mark.parametrize("place", ["pyproject.toml", "src/pyproject.toml"])
def test_settings_are_left_to_the_command(place: str) -> None:
    """They may be wrong, which is an error even where nothing is found."""
    Path(place).write_text("[tool.dp2ddp]\nselct = []\n")

    assert not finds_nothing(["src"])
    assert CliRunner().invoke(main, ["check", "src"]).exit_code == 3


def test_the_command_line_is_not_imported_for_it() -> None:
    """Nor is `typing`, which takes as long to import as Python to start."""
    code = "import sys\nfor name in ('typing', 're'): sys.modules.pop(name, None)\n"  # an editable install has them
    code += "sys.argv = ['dp2ddp', 'check']\nfrom dp2ddp.__main__ import run\nrun()\n"
    code += "print({'click', 'typing', 're'} & {*sys.modules})"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "1 file: nothing found\nset()\n"
