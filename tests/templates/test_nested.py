"""Helpers meet, one inside the other, and no rank waits for ever: one run for all pairs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import FORKED

PROGRAM = Path(__file__).with_name("nested_program.py")
pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[Any]]]:
    """What each of two ranks found of each pair."""
    folder = tmp_path_factory.mktemp("ranks")
    run = subprocess.run(
        [*FORKED, "2", str(PROGRAM), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,  # of a wait that has no end
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return [json.loads((folder / f".{rank}.json").read_text()) for rank in range(2)]


def test_whatever_meets_is_done_once_and_the_ranks_stay_together(found: list[dict[str, list[Any]]]) -> None:
    first, second = found
    assert first == second
    assert len(first) >= 13 * 15
    assert {pair: answer for pair, answer in first.items() if answer != ["", True, "x"]} == {}


def test_helpers_do_not_notice_that_they_are_alone(tmp_path: Path) -> None:
    """The same program as one process."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answers = json.loads((tmp_path / ".0.json").read_text())
    assert {pair: answer for pair, answer in answers.items() if answer != ["", True, "x"]} == {}
