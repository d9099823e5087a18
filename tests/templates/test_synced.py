"""Batch norm over all replicas, on 1 to 4 ranks over gloo (one run for all tests), beside one of the whole batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
WORLDS = (1, 2, 3, pytest.param(4, marks=pytest.mark.slow))

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, worlds: list[int]) -> dict[int, list[Any]]:
    """What every rank found, in rank order, by the number of ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    run = subprocess.run(
        [sys.executable, str(HERE / "synced_program.py"), str(folder), *map(str, worlds)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return {
        world: [json.loads((folder / f"{world}_{rank}.json").read_text()) for rank in range(world)]
        for world in worlds
    }


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("check", ["trained", "without_gradients", "frozen", "gradients_of_gradients"])
def test_statistics_and_gradients_are_those_of_the_whole_batch(found: Any, world: int, check: str) -> None:
    answers = [each[check] for each in found[world]]
    assert all(isinstance(answer, float) and answer < 1e-11 for answer in answers), answers


@pytest.mark.parametrize("world", WORLDS[1:])
def test_messages_come_from_ranks_with_rows_in_rank_order(found: Any, world: int) -> None:
    for rank, each in enumerate(found[world]):
        seen, printed = each["messages_in_order"]
        assert seen == [list(range(world)), [0, 1]][: 2 if rank < 2 else 1]
        assert printed == 2  # once a forward, by rank 0


@pytest.mark.parametrize("world", WORLDS[1:])
def test_an_error_of_one_replica_is_heard_by_all_and_nobody_waits(found: Any, world: int) -> None:
    for each in found[world]:
        late, alone, shapes, left = each["errors"]
        assert "too large" in late
        assert "one row" in alone
        assert "shapes cannot be multiplied" in shapes
        assert "One of the replicas has ended" in left


@pytest.mark.parametrize("world", WORLDS)
def test_outside_of_a_forward_nobody_answers(found: Any, world: int) -> None:
    assert all(each["outside_of_a_forward"] is True for each in found[world])
