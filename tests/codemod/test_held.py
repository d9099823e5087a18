"""Threads, queues and pools that rank 0 has: on two ranks (one run for all tests), and in conversions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.runtime.process.server import Server
from tests.codemod.programs import WRAP, converted
from tests.diffs import Script, cases, scripts
from tests.ranks import found_on_ranks

HERE = Path(__file__).parent
FILE = HERE / "held" / "cases.diff"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> list[dict[str, Any]]:
    """What each rank found."""
    return found_on_ranks(server, HERE / "held_program.py", tmp_path_factory.mktemp("ranks"), "2")[2]


@pytest.mark.torchrun
def test_all_ranks_get_what_rank_0s_thread_hands_over(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["batches"] == [[0, 0, [0]], [40, 0, [0]], [80, 0, [0]]]
        assert each["stands"] == [True, True]
        assert each["empty"]


@pytest.mark.torchrun
def test_the_scripts_random_numbers_go_on_as_rank_0s_do(found: list[dict[str, Any]]) -> None:
    alone = random.Random(0)
    expected = [alone.random(), alone.random(), 6]
    assert [each["drawn"] for each in found] == [expected, expected]
    assert [each["settled"] for each in found] == [5, 5]
    for each in found:
        assert [why.startswith("a thread would draw random numbers") for why in each["loading"]] == [
            True,
            False,
            False,
            False,
        ]


@pytest.mark.torchrun
def test_what_cannot_be_copied_stays_on_rank_0(found: list[dict[str, Any]]) -> None:
    assert [each["futures"] for each in found] == [[1, 2, 4]] * 2
    assert [each["mapped"] for each in found] == [[1, 2]] * 2


@pytest.mark.torchrun
def test_all_ranks_hear_what_rank_0s_processes_say_through_pipes(found: list[dict[str, Any]]) -> None:
    assert [each["piped"] for each in found] == [[[10, 0, 0], [10, 1, 0]]] * 2


@pytest.mark.torchrun
def test_what_a_manager_has_is_asked_on_rank_0(found: list[dict[str, Any]]) -> None:
    """Its proxies can be sent, and no other rank can open them."""
    assert [each["managed"] for each in found] == [[5, False, 1, ["x"]]] * 2


def test_threads_and_what_they_meet_at_are_rank_0s() -> None:
    after = converted(scripts(FILE)["bases/thread"].body).after
    assert "batches = hold_on_rank0(queue.Queue, 8)\n" in after
    assert "\nhold_on_rank0(threading.Thread, target=fill, args=(batches,)).start()\n" in after


@pytest.mark.parametrize("script", cases(FILE), ids=lambda script: script.name)
def test_what_runs_beside_the_script_is_held_by_rank_0_or_a_hazard(script: Script) -> None:
    """The head of a case: the one hazard, or none; what the conversion has, and what it lacks."""
    said = script.said
    found = converted(script.body)
    assert [each.code for each in found.hazards] == ["DDP906"] * ("hazard" in said)
    assert all(said["hazard"] in each.because for each in found.hazards)
    assert said.get("has", "") in found.after
    assert "lacks" not in said or said["lacks"] not in found.after


OF_THREADS = [each for each in cases(FILE) if "processes" in each.said]
OF_WORKERS = [each for each in cases(FILE) if "alone" in each.said]


@pytest.mark.parametrize("script", OF_THREADS, ids=lambda script: script.name)
def test_what_a_pool_of_processes_changes_are_copies(script: Script) -> None:
    assert not converted(script.body.replace("ThreadPool", "ProcessPool")).hazards


@pytest.mark.parametrize("script", OF_WORKERS, ids=lambda script: script.name)
def test_without_workers_each_rank_has_its_own(script: Script) -> None:
    found = converted(script.body.replace("num_workers=2", "num_workers=0"))
    assert not found.hazards
    assert "hold_on_rank0" not in found.after


def test_a_class_that_is_a_thread_is_found_in_another_file() -> None:
    readers = (
        "import threading\nclass Base(threading.Thread):\n    pass\n"
        "class Reader(Base):\n    def run(self):\n        self.batch = 1\n"
    )
    text = f"import readers\n{WRAP}reader = readers.Reader()\nreader.start()\nprint(reader.batch)\n"
    assert "reader = hold_on_rank0(readers.Reader)\n" in converted(text, {"readers": readers}).after
