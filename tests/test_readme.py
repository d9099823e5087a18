"""Figures of the README, its first two commands, its diff; links and other code: test_docs.py, test_docs_code.py."""

from __future__ import annotations

import difflib
import importlib
import re
from pathlib import Path

import pytest

import dp2ddp
from dp2ddp.review.check_rule import check_rules

ROOT = Path(__file__).resolve().parent.parent
PORTS = ROOT / "benchmarks" / "ports"
README = (ROOT / "README.md").read_text(encoding="utf-8")
LIVING = (ROOT / "docs" / "living_with_it.md").read_text(encoding="utf-8")
COMPARISON = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMAND_LINES = [line for language, block in FENCED if language == "sh" for line in block.splitlines()]


def test_all_code_says_what_it_is() -> None:
    assert {language for language, _ in FENCED} == {"sh", "diff"}


def test_the_first_two_commands_are_the_demo_and_the_tests() -> None:
    scripts = [line.split()[1] for line in COMMAND_LINES if line.startswith("python3 ")]
    assert scripts == ["examples/demo.py", "tests/run.py"]
    assert all((ROOT / script).is_file() for script in scripts)


def test_the_ci_runs_what_the_readme_says() -> None:
    assert "python3 tests/run.py" in (ROOT / ".ci" / "run").read_text()


def test_the_demo_shows_the_diff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    today = importlib.import_module("demo").dp2ddp("convert", "train.py", "--diff", capture=True).stdout
    (shown,) = [block for language, block in FENCED if language == "diff"]
    assert [line.rstrip() for line in shown.rstrip().splitlines()] == [
        line.rstrip() for line in today.rstrip().splitlines()
    ]


def test_the_helpers_have_as_many_lines_as_it_says() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\| ([\d,]+) \| \[\w+\]\(\.\./([^)]+)\) \|$", LIVING, re.MULTILINE)
    assert len(rows) == 3
    for wrapper, lines, file in rows:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert len(text.splitlines()) == int(lines.replace(",", "")), file
        assert f"= {wrapper}(" in (ROOT / file).with_name("train_ddp.py").read_text(encoding="utf-8")
    assert f"has {rows[0][1]} lines here" in README  # of cifar_bn


def test_conversions_and_ports_take_as_many_lines_as_it_says() -> None:
    (row,) = re.findall(r"^\| lines changed or added in seven scripts.*$", COMPARISON, re.MULTILINE)
    ours, *others = [re.findall(r"\d+", cell)[:2] for cell in row.split("|")[2:6]]
    conversions = [dp2ddp.convert(folder / "train_dp.py") for folder in folders()]
    changed = [re.findall(r"^\+(?!\+\+ )", one.diff(), re.MULTILINE) for one in conversions]
    assert spread([len(lines) for lines in changed]) == ours
    *helpers, lm = sorted(one.helpers.after.count("\n") for one in conversions if one.helpers)
    assert f"helpers of {helpers[0]} to {helpers[-1]} ({lm:,} for the language model" in row
    for numbers, name in zip(others, ("ddp", "accelerate", "fabric"), strict=True):
        counts = [changed_lines(folder / "train_dp.py", folder / f"train_{name}.py") for folder in folders()]
        assert spread(counts) == numbers, name


def test_the_check_has_as_many_rules_as_it_says() -> None:
    assert f"| rules about DDP code | {len(check_rules())} |" in COMPARISON


def spread(counts: list[int]) -> list[str]:
    return [str(min(counts)), str(max(counts))]


def folders() -> list[Path]:
    found = sorted(path.parent for path in PORTS.glob("*/train_dp.py"))
    assert len(found) == 7
    return found


def changed_lines(before: Path, after: Path) -> int:
    lines = [path.read_text(encoding="utf-8").splitlines() for path in (before, after)]
    return sum(line.startswith("+ ") for line in difflib.ndiff(*lines))
