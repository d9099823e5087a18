"""Helpers meet, one inside the other, and no rank waits for ever: one run for all pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.runtime.process.server import Server
from tests.ranks import run_program

PROGRAM = Path(__file__).with_name("nested_program.py")
pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> list[dict[str, list[Any]]]:
    """What each of two ranks found of each pair."""
    folder = tmp_path_factory.mktemp("ranks")
    run = run_program(server, folder, PROGRAM, folder, ranks=2)
    assert run.returncode == 0, run.stderr[-3000:]
    return [json.loads((folder / f".{rank}.json").read_text()) for rank in range(2)]


def test_whatever_meets_is_done_once_and_the_ranks_stay_together(found: list[dict[str, list[Any]]]) -> None:
    first, second = found
    assert first == second
    assert len(first) >= 13 * 15
    assert {pair: answer for pair, answer in first.items() if answer != ["", True, "x"]} == {}


def test_helpers_do_not_notice_that_they_are_alone(tmp_path: Path, server: Server) -> None:
    """The same program as one process."""
    run = run_program(server, tmp_path, PROGRAM, tmp_path)
    assert run.returncode == 0, run.stderr[-3000:]
    answers = json.loads((tmp_path / ".0.json").read_text())
    assert {pair: answer for pair, answer in answers.items() if answer != ["", True, "x"]} == {}
