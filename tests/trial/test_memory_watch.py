"""Runs that are watched while the memory goes: who is ended, who comes again, and what is said of the last."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dp2ddp.errors import RunError
from dp2ddp.runtime.process.room import Room
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.run_folder import prepare_run_folder
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.trial import rounds
from dp2ddp.trial.rounds import MemoryWatch
from tests.heard import Heard

GB = 2**30


class Machine:
    """Memory, as a test wants it; runs hold 3 GB each."""

    def __init__(self, free: int, limit: int = 10 * GB) -> None:
        self.free, self.limit, self.kills = free, limit, 0


class Server:
    """The process that ranks are forked from."""

    pid = 1


class Running:
    """A run that goes on as long as a test says."""

    def __init__(
        self, folder: Path, mode: Mode, dtype: str, goes_on: Callable[[], bool], code: int | None = 0
    ) -> None:
        name = f"{mode}-{dtype}"
        self.stage = Stage(
            script="train.py", name="train.py", mode=mode, world=2, folder=str(folder), run_folder=str(folder / name),
            dtype=dtype,
        )  # fmt: skip
        prepare_run_folder(self.stage)
        self.started, self.killed = 0.0, False
        self._goes_on, self._code = goes_on, code

    def codes(self) -> tuple[int | None, ...] | None:
        if self.killed:
            return (None,) * len(self.stage.ranks)
        return None if self._goes_on() else (self._code,) * len(self.stage.ranks)

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(8 * GB)
    monkeypatch.setattr(rounds, "read_room", lambda: Room(made.free, made.limit))
    monkeypatch.setattr(rounds, "held_by", lambda stage, server: 3 * GB)
    monkeypatch.setattr(rounds, "count_kills", lambda: made.kills)
    monkeypatch.setattr(rounds, "_LOOK", 0.0)
    monkeypatch.setattr(rounds, "_WEIGH", 0.0)
    return made


def looks(count: int) -> Callable[[], bool]:
    """A run that is over when it was looked at so often."""
    left: Iterator[int] = iter(range(count))
    return lambda: next(left, None) is not None


def watched(runnings: list[Running], may_wait: bool = True) -> tuple[MemoryWatch, list[Run], Heard]:
    heard, ended = Heard(), list[Run]()
    made = MemoryWatch(runnings, Server(), heard, may_wait=may_wait)  # type: ignore[arg-type]
    made.watch(None, ended.append, lambda looks: None)
    return made, ended, heard


def test_where_memory_is_enough_all_go_to_their_end(tmp_path: Path, machine: Machine) -> None:
    runs = [Running(tmp_path, "dp", "float64", looks(5)), Running(tmp_path, "ddp", "float64", looks(9))]
    made, ended, heard = watched(runs)
    assert [run.stage.mode for run in ended] == ["dp", "ddp"]
    assert (made.aside, heard.lines) == (set(), [])
    assert made.peaks == {run.stage.run_folder: 3 * GB for run in runs}


def test_when_the_memory_goes_the_last_ones_are_ended_and_do_not_count(
    tmp_path: Path, machine: Machine
) -> None:
    machine.free = GB // 2  # of 10 GB: one of 3 GB has to go
    runs = [
        Running(tmp_path, "dp", "float64", looks(9)),
        Running(tmp_path, "ddp", "float64", looks(9)),
        Running(tmp_path, "dp", "float32", lambda: True),
    ]
    machine_goes_on = runs[2].kill

    def kill() -> None:
        machine_goes_on()
        machine.free = 3 * GB

    runs[2].kill = kill  # type: ignore[method-assign]
    made, ended, heard = watched(runs)
    assert [run.killed for run in runs] == [False, False, True]
    assert made.aside == {runs[2].stage.run_folder}
    assert [run.stage.dtype for run in ended] == ["float64", "float64"]
    assert heard.lines == [
        "537 MB are free of the 10.7 GB of this machine, too little for all at once: dp in float32 again behind the "
        "others"
    ]


def test_the_last_one_goes_on_whatever_is_free(tmp_path: Path, machine: Machine) -> None:
    machine.free = 0
    (run,) = runs = [Running(tmp_path, "ddp", "float64", looks(9))]
    made, ended, _ = watched(runs, may_wait=False)
    assert (run.killed, made.aside, len(ended)) == (False, set(), 1)


def test_one_that_the_system_ends_beside_others_comes_again(tmp_path: Path, machine: Machine) -> None:
    def until_killed() -> bool:
        machine.kills = 1
        return False

    killed = Running(tmp_path, "ddp", "float64", until_killed, code=-signal.SIGKILL)
    made, ended, heard = watched([Running(tmp_path, "dp", "float64", looks(9)), killed])
    assert made.aside == {killed.stage.run_folder}
    assert [run.stage.mode for run in ended] == ["dp"]
    assert heard.lines == ["ddp in float64 got no more memory beside the others: again, alone"]


def test_of_one_that_the_system_ends_alone_it_is_said(tmp_path: Path, machine: Machine) -> None:
    def until_killed() -> bool:
        machine.kills = 1
        return next(going, None) is not None

    going = iter(range(5))
    with pytest.raises(RunError) as caught:
        watched([Running(tmp_path, "dp", "float64", until_killed, -signal.SIGKILL)], may_wait=False)
    first, second = str(caught.value).splitlines()
    assert first.startswith(
        "train.py: runs out of memory in dp mode on 2 devices: it held 3.22 GB, with nothing beside"
    )
    assert "the system ended one (SIGKILL)" in first
    assert second.startswith("  what now: a smaller batch or model")
    assert "original" not in str(caught.value)
    assert (caught.value.details["kind"], caught.value.details["rank"]) == ("memory", 0)
    json.dumps(caught.value.details)


def test_a_kill_of_which_the_system_knows_nothing_is_passed_on(tmp_path: Path, machine: Machine) -> None:
    run = Running(tmp_path, "dp", "float64", looks(1), code=-signal.SIGKILL)
    _, ended, _ = watched([run], may_wait=False)
    assert [each.failure and each.failure.kind for each in ended] == ["crash"]


def test_a_run_that_was_set_aside_is_not_shown_any_more(tmp_path: Path, machine: Machine) -> None:
    machine.free = 0
    runs = [Running(tmp_path, "dp", "float64", looks(9)), Running(tmp_path, "ddp", "float64", lambda: True)]
    shown: list[list[str]] = []
    made = MemoryWatch(runs, Server(), Heard(), may_wait=True)  # type: ignore[arg-type]
    made.watch(None, lambda run: None, lambda looks: shown.append([look.stage.mode for look in looks]))
    assert shown[-1] == ["dp"]
