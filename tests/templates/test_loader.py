"""Loops over loaders on ranks find what one process finds (loader_program.py), however batches get to the ranks."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from covering import slow_but_for

from dp2ddp.runtime.process.server import Server
from tests.ranks import run_program

HERE = Path(__file__).parent
WAYS = {"maps 2": True, "messages 2": False, "nodes 3": False}  # whether memory is mapped
by_way = pytest.mark.parametrize("way", slow_but_for(("maps 2", "nodes 3"), [*WAYS], str))
LOOPS = (
    *("shuffled", "without_workers", "own_generator", "persistent_workers", "sampler_with_memory", "errors"),
    *("error_at_the_start", "two_at_once", "streams_of_samples", "endless_loader", "settings_of_workers"),
    *("all_sorts", "writes", "nothing_is_left", "kept_workers", "views", "late_rank"),
)
pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server, wants_all: bool) -> Any:
    """found(way, rank): what each loop found."""
    folder = tmp_path_factory.mktemp("ranks")
    ways = [way for way in WAYS if wants_all or way != "messages 2"]  # on three nodes, messages as well
    run = run_program(server, folder, HERE / "loader_program.py", folder, "one process", *ways)
    assert run.returncode == 0, run.stderr[-3000:]
    return functools.cache(lambda way, rank=0: json.loads((folder / f"{way}_{rank}.json").read_text()))


@by_way
@pytest.mark.parametrize("loop", LOOPS)
def test_every_rank_finds_what_one_process_finds(found: Any, loop: str, way: str) -> None:
    expected = found("one process")[loop]
    assert "failed" not in expected, expected[1]
    for rank in range(int(way[-1])):
        assert found(way, rank)[loop] == expected
        assert found(way, rank)["plain"].get(loop, expected) == expected
        assert found(way, rank)["pinned"].get(loop, expected) == expected


def test_the_plain_loader_runs_most_loops(found: Any) -> None:
    assert len(found("maps 2")["plain"]) == len(LOOPS) - 5


def test_a_thread_copies_what_is_to_be_pinned(found: Any) -> None:
    assert found("maps 2", 1)["copied by the main thread"] == [False]


def test_the_loops_see_what_they_are_meant_to_see(found: Any) -> None:
    """Errors come in the middle and loading goes on; samplers look ahead; noise is drawn in workers."""
    one = found("one process")
    assert ["KeyError", "KeyError: 'five'"] in one["errors"]
    assert one["errors"][-1] == 0  # workers that live on
    assert len(one["sampler_with_memory"][0][1]) == 10  # of two samples each: one given out, four ahead
    assert one["writes"][0][0] % 1 != 0
    assert all(each[1] for each in one["writes"][:-1])
    assert one["nothing_is_left"][:2] == [True, True]


@by_way
def test_all_ranks_map_memory_or_none(found: Any, way: str) -> None:
    assert [found(way, rank)["lends"] for rank in range(int(way[-1]))] == [WAYS[way]] * int(way[-1])


@by_way
def test_what_cannot_be_sent_is_an_error_on_all_ranks(found: Any, way: str) -> None:
    """And loading goes on behind it."""
    for rank in range(int(way[-1])):
        assert found(way, rank)["unsendable"] == [0, "TypeError", 2]


def test_a_plain_loader_refuses_a_sampler_that_it_would_not_follow(found: Any) -> None:
    for rank in range(2):
        assert ["convert the script again" in each for each in found("maps 2", rank)["of your own"]] == [True]


def test_a_thread_is_told_that_it_cannot_ask(found: Any) -> None:
    for rank in range(2):
        error, batch = found("maps 2", rank)["asked by a thread"]
        assert "main thread" in error
        assert batch == "list"
