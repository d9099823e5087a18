"""Errors in backward that a script catches: those of all ranks alike, and one rank's, for which the others wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.runtime.process.server import Server
from tests.ranks import run_program

PROGRAM = Path(__file__).with_name("errors_program.py")
pytestmark = pytest.mark.torchrun


@pytest.mark.parametrize("world", [2, 3])
def test_behind_an_error_of_all_ranks_the_run_goes_on(world: int, server: Server, tmp_path: Path) -> None:
    run = run_program(server, tmp_path, PROGRAM, *map(str, range(world)), ranks=world)

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[:2] == ["2 out of memory", "3 out of memory"]
    assert len(run.stdout.splitlines()) == 3


@pytest.mark.parametrize("failing", [0, 1])
def test_behind_an_error_of_one_rank_the_run_ends(failing: int, server: Server, tmp_path: Path) -> None:
    run = run_program(server, tmp_path, PROGRAM, str(failing), ranks=2)

    assert run.returncode
    assert f"rank {failing}: out of memory in backward, on this rank alone" in run.stderr
