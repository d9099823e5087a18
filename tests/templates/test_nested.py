"""Helpers meet, one inside the other, and no rank waits for ever: one run for all pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import FORKED, run_program

PROGRAM = Path(__file__).with_name("nested_program.py")
pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[Any]]]:
    """What each of two ranks found of each pair."""
    folder = tmp_path_factory.mktemp("ranks")
    run_program(FORKED, "2", PROGRAM, folder)
    return [json.loads((folder / f".{rank}.json").read_text()) for rank in range(2)]


def test_whatever_meets_is_done_once_and_the_ranks_stay_together(found: list[dict[str, list[Any]]]) -> None:
    first, second = found
    assert first == second
    assert len(first) >= 13 * 15
    assert {pair: answer for pair, answer in first.items() if answer != ["", True, "x"]} == {}


def test_helpers_do_not_notice_that_they_are_alone(tmp_path: Path) -> None:
    """The same program as one process."""
    run_program(PROGRAM, tmp_path)
    answers = json.loads((tmp_path / ".0.json").read_text())
    assert {pair: answer for pair, answer in answers.items() if answer != ["", True, "x"]} == {}
