"""What the README says is there: its commands, its links, and the picture of a run."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from dp2ddp.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?:^(?: {4}.*)?\n)+", README, re.MULTILINE)
COMMAND_LINES = [line.strip() for block in BLOCKS for line in block.splitlines() if line.startswith("    ")]


def test_the_first_two_commands_are_the_demo_and_the_tests() -> None:
    scripts = [line.split()[1] for line in COMMAND_LINES if line.startswith("python3 ")]
    assert scripts == ["examples/demo.py", "tests/run.py"]
    assert all((ROOT / script).is_file() for script in scripts)


def test_every_command_it_names_exists() -> None:
    named = {line.split()[1] for line in COMMAND_LINES if line.startswith("dp2ddp ")}
    assert named
    assert named <= set(COMMANDS)


def test_every_link_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not leads_somewhere(link)] == []


def leads_somewhere(link: str) -> bool:
    """A file or folder that is there, with the heading that is named."""
    path, _, heading = link.partition("#")
    if not (ROOT / path).exists():
        return False
    titles = (
        re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE) if heading else []
    )
    return not heading or heading in {re.sub(r"[^\w-]", "", one.lower().replace(" ", "-")) for one in titles}


def test_the_ci_runs_what_the_readme_says() -> None:
    assert "python3 tests/run.py" in (ROOT / ".ci" / "run").read_text()


def test_the_picture_shows_todays_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it does not: run `python3 examples/demo.py` and paste what it prints."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    demo = importlib.import_module("demo")
    diff = demo.dp2ddp("convert", "train.py", "--diff", capture=True)
    today = [*diff.stdout.splitlines(), *diff.stderr.splitlines()]
    shown = [line.removeprefix("    ") for line in README.splitlines()]
    start = shown.index(today[0])
    assert shown[start : start + len(today)] == [line.rstrip() for line in today]
