"""Whole scripts and projects that are right, in the styles that people write: the check has nothing to say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.review.checking import check

RIGHT = Path(__file__).parent / "right"
ENTRIES = sorted(path for path in RIGHT.iterdir() if path.is_dir() or path.suffix == ".py")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda path: path.stem)
def test_nothing_is_said_of_a_right_script(entry: Path) -> None:
    result = check([str(entry)])

    assert [(problem.place, problem.code, problem.message) for problem in result.problems] == []
    assert result.unread == ()


@pytest.mark.parametrize("entry", [path for path in ENTRIES if path.is_dir()], ids=lambda path: path.name)
def test_nothing_is_said_of_a_right_project_by_its_script(entry: Path) -> None:
    """The script alone is named, and what it imports is read."""
    assert check([str(entry / "train.py")]).problems == ()
