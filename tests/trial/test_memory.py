"""How many runs go at once, which are ended again, and what counts as a lack of memory: numbers in, numbers out."""

from __future__ import annotations

import dataclasses
import resource
import signal

import pytest

from dp2ddp.runtime.process.room import CONTAINER, Room
from dp2ddp.runtime.process.run import Failure, Run
from dp2ddp.trial.rounds import (
    AGENT,
    FORKED,
    MB,
    STARTED,
    Seen,
    empty_need,
    how_many_at_once,
    how_many_to_end,
    lacked_memory,
    memory_text,
    reserve,
)
from tests.report.made_up import failed_run

GB = 1024 * MB
PLENTY = Room(16 * GB, 32 * GB)


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        pytest.param(1 * GB, 256 * MB, id="never less"),
        pytest.param(8 * GB, 8 * GB // 10, id="a tenth"),
        pytest.param(1024 * GB, 2 * GB, id="never more"),
    ],
)
def test_what_stays_free(limit: int, kept: int) -> None:
    assert reserve(Room(limit, limit)) == kept


def test_all_runs_of_a_small_script_go_at_once() -> None:
    empty = [
        empty_need(2, torchrun=True),
        *(empty_need(processes, torchrun=False) for processes in (1, 1, 2)),
    ]
    assert empty == [AGENT + 2 * STARTED, FORKED, FORKED, 2 * FORKED]
    assert how_many_at_once(Room(2 * GB, 4 * GB), empty) == 4
    assert how_many_at_once(PLENTY, []) == 0


@pytest.mark.parametrize(
    ("free", "count"),
    [
        pytest.param(10 * GB, 3, id="just"),
        pytest.param(10 * GB - 1, 2, id="a byte too little for the last"),
        pytest.param(7 * GB - 1, 1, id="for one"),
        pytest.param(0, 1, id="one has to be tried"),
    ],
)
def test_as_many_go_at_once_as_fit_beside_the_reserve(free: int, count: int) -> None:
    room = Room(free, 10 * GB)  # its reserve is 1 GB
    assert how_many_at_once(room, [3 * GB, 3 * GB, 3 * GB]) == count


def test_the_later_ones_do_not_overtake_one_that_does_not_fit() -> None:
    assert how_many_at_once(Room(4 * GB, 10 * GB), [GB, 5 * GB, GB]) == 1


@pytest.mark.parametrize(
    ("free", "held", "coming_back", "count"),
    [
        pytest.param(GB, [GB] * 4, 0, 0, id="enough is free"),
        pytest.param(GB - 1, [GB] * 4, 0, 2, id="as few as make it twice the reserve"),
        pytest.param(GB - 1, [GB, GB, GB, 2 * GB], 0, 1, id="the last one is large enough"),
        pytest.param(0, [8 * GB, 0, 0, 0], 0, 3, id="the first is never ended"),
        pytest.param(0, [GB], 0, 0, id="a single one goes on"),
        pytest.param(0, [GB, GB], GB, 0, id="what was ended comes back"),
        pytest.param(0, [], 0, 0, id="none"),
    ],
)
def test_which_are_ended_when_the_memory_goes(
    free: int, held: list[int], coming_back: int, count: int
) -> None:
    assert how_many_to_end(Room(free, 10 * GB), held, coming_back) == count


def crashed(text: str, code: int | None = 1, kind: str = "crash") -> Run:
    made = failed_run("crash")
    return dataclasses.replace(made, codes=(code, 0, 0), failure=Failure(kind, 0, text))


def seen(lowest: int = 8 * GB, kills: int = 0) -> Seen:
    return Seen(3 * GB, Room(9 * GB, 10 * GB, CONTAINER), Room(lowest, 10 * GB, CONTAINER), kills)


@pytest.mark.parametrize(
    "said",
    [
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
    ],
)
def test_what_is_said_where_there_is_no_more_memory(said: str) -> None:
    assert lacked_memory(crashed(said), seen())


KILL = -signal.SIGKILL


@pytest.mark.parametrize(
    ("run", "seen_", "lacked"),
    [
        pytest.param(crashed("ended by signal SIGKILL", KILL), seen(kills=1), True, id="the kernel says so"),
        pytest.param(crashed("ended by signal SIGKILL", KILL), seen(lowest=MB), True, id="nothing was free"),
        pytest.param(crashed("ended by signal SIGKILL", KILL), seen(), False, id="anybody may send a signal"),
        pytest.param(
            crashed("ValueError: x", 1), seen(kills=1, lowest=MB), False, id="the script's own fault"
        ),
        pytest.param(crashed("ended from outside", None), seen(kills=1), False, id="we ended it"),
        pytest.param(crashed("nothing moved", KILL, "hang"), seen(kills=1), False, id="a hang"),
    ],
)
def test_a_kill_counts_where_somebody_else_bears_witness(run: Run, seen_: Seen, lacked: bool) -> None:
    assert lacked_memory(run, seen_) is lacked


def test_a_run_that_ended_well_lacked_nothing() -> None:
    assert not lacked_memory(dataclasses.replace(crashed("MemoryError"), failure=None), seen(MB, 1))


def test_what_it_held_and_what_there_is_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert memory_text(crashed("", KILL), seen()) == (
        "its ranks held 3.22 GB, with nothing beside; before, 9.66 GB were free of the 10.7 GB of this container: "
        "the system ended one (SIGKILL)"
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4 * 10**9, 4 * 10**9))
    unseen = dataclasses.replace(seen(), held=0)
    assert memory_text(crashed("MemoryError"), unseen) == (
        "with nothing beside; before, 9.66 GB were free of the 10.7 GB of this container, and a process may have 4 GB "
        "(ulimit -v): MemoryError"
    )
