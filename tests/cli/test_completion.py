"""Shell completion: click's own, for a group whose commands are imported late."""

from __future__ import annotations

import importlib
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dp2ddp.cli import COMMANDS
from tests.cli.scripts import variables

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "installing.md").read_text(encoding="utf-8")
PROGRAM = Path(sys.executable).parent / "dp2ddp"


def offered(folder: Path, line: str) -> list[str]:
    """What is offered behind this line, as click tells bash: kind,value."""
    words = line.split(" ")
    environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_DP2DDP_COMPLETE": "bash_complete"}
    result = subprocess.run(
        [PROGRAM], cwd=folder, env=variables() | environment, capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    return result.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("dp2ddp conv", ["plain,convert"]),
        ("dp2ddp convert tra", ["file,tra"]),
        ("dp2ddp convert train.py -o o", ["file,o"]),
        ("dp2ddp verify tra", ["file,tra"]),
        ("dp2ddp verify train.py --conv", ["plain,--converted", "plain,--converted-arguments"]),
        ("dp2ddp convert train.py --style id", ["plain,idiomatic"]),
        ("dp2ddp run train.py --mode ", ["plain,dp", "plain,ddp"]),
        ("dp2ddp rules ddp20", [f"plain,DDP20{number}" for number in (1, 4, 8)]),
    ],
)
def test_what_is_offered(tmp_path: Path, line: str, kinds: list[str]) -> None:
    assert offered(tmp_path, line) == kinds


def test_all_commands_are_offered(tmp_path: Path) -> None:
    assert offered(tmp_path, "dp2ddp ") == [f"plain,{name}" for name in COMMANDS]


def test_the_line_of_the_page_makes_a_bash_complete(tmp_path: Path) -> None:
    """In an interactive bash, with the tab key."""
    bash = shutil.which("bash")
    assert bash
    (line,) = re.findall(r"^(eval .*bash_source.*?) *#", PAGE, re.MULTILINE)
    (tmp_path / "training.py").touch()
    ours, theirs = pty.openpty()
    environment = variables() | {
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "PS1": "$ ",
        "TERM": "xterm",
    }
    environment.pop("INPUTRC", None)
    process = subprocess.Popen(
        [bash, "--norc", "--noprofile", "-i"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        while text not in seen:
            seen += os.read(ours, 4096).decode()
        seen = seen.partition(text)[2]

    os.write(ours, f"{line}; echo re''ady\n".encode())
    until("ready")
    os.write(ours, b"dp2ddp conv\t")
    until("dp2ddp convert ")
    os.write(ours, b"train\t")
    until("training.py")
    os.write(ours, b"--sty\t")
    until("--style ")
    process.kill()
    process.wait()
    os.close(ours)


def test_codes_of_rules_are_offered_also_behind_a_comma() -> None:
    check, convert = (importlib.import_module(f"dp2ddp.cli.{name}").command for name in ("check", "convert"))
    assert codes_offered(check, "--select", "ddp60") == [f"DDP60{digit}" for digit in "12456789"]
    assert codes_offered(check, "--ignore", "DDP601,DDP62") == [
        f"DDP601,DDP{code}" for code in (622, 625, 627, 628)
    ]
    assert codes_offered(convert, "--select", "DDP10") == [f"DDP10{digit}" for digit in "124"]
    assert codes_offered(convert, "--ignore", "DDP6") == []


def codes_offered(command: click.Command, option: str, begun: str) -> list[str]:
    (parameter,) = [one for one in command.params if option in one.opts]
    return sorted(item.value for item in parameter.shell_complete(click.Context(command), begun))
