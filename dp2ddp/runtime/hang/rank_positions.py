"""Asks each rank of a run where it is, and waits a moment for the answers: the parent's side, without torch."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from dp2ddp.runtime.hang.collectives import read_calls
from dp2ddp.runtime.hang.stacks import ASYNCHRONOUS, RankPosition, read_position, read_worker
from dp2ddp.runtime.processes import has_ended
from dp2ddp.runtime.run_folder import LAUNCHER, RankStatus, read_status
from dp2ddp.runtime.stage import Stage

_ANSWER = 0.3  # seconds


def ask_positions(stage: Stage) -> tuple[RankPosition, ...]:
    """Where each rank is, or how it has ended; takes about 0.3 seconds, in which the ranks answer."""
    run_folder = Path(stage.run_folder)
    statuses = {rank: read_status(run_folder, rank) for rank in stage.ranks}
    if any(status is None for status in statuses.values()) and (
        launcher := read_status(run_folder, LAUNCHER)
    ):
        statuses[LAUNCHER] = launcher
    _signal(status.pid for status in statuses.values() if status and status.code is None)
    time.sleep(_ANSWER)
    positions = [_position(stage, rank, status) for rank, status in sorted(statuses.items())]
    return tuple(_with_worker(stage, position, statuses[position.rank]) for position in positions if position)


def ended_positions(stage: Stage) -> tuple[RankPosition, ...]:
    """How ranks ended, of those that have said so; () in a run of one rank."""
    statuses = (
        (rank, read_status(Path(stage.run_folder), rank)) for rank in stage.ranks if len(stage.ranks) > 1
    )
    return tuple(_end(rank, status) for rank, status in statuses if status and status.code is not None)


def _end(rank: int, status: RankStatus) -> RankPosition:
    place = f" at {status.place}" if status.place else ""
    words = (
        f"failed{place}: {without_gloo_details(status.error)}"
        if status.error
        else f"has ended with exit code {status.code}"
    )
    return RankPosition(rank, ended=words)


def without_gloo_details(error: str) -> str:
    """An error line; of what gloo says when another rank has gone, not its own files and lines."""
    match = _GLOO.match(error)
    return f"RuntimeError: {match[1]}, since another rank has gone" if match else error


def misses_a_rank(error: str) -> bool:
    """Whether an error line is gloo's, that another rank has gone."""
    return _GLOO.match(error) is not None


_GLOO = re.compile(r"RuntimeError: \[[^]]*/gloo/[^]]*\] (.*?)(?: \[[^]]*\]:\d+.*)", re.DOTALL)


def _signal(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def _position(stage: Stage, rank: int, status: RankStatus | None) -> RankPosition | None:
    if status is None:
        return RankPosition(rank, ended="has not joined" if stage.starts_ranks else "has not begun")
    if status.code is not None:
        return _end(rank, status)
    if has_ended(status.pid):
        return RankPosition(
            rank, ended=f"is gone: a signal ended it (out of memory?){_last_call(stage, rank)}"
        )
    position = read_position(_text(stage, rank), rank, stage.mode)
    return position and _with_call(stage, position)


def _last_call(stage: Stage, rank: int) -> str:
    """Where a rank was last heard of, that can no longer be asked."""
    last = next(reversed(read_calls(Path(stage.run_folder), rank)), None)
    return f"; its last call that other ranks join was {last}" if last else ""


def _with_call(stage: Stage, position: RankPosition) -> RankPosition:
    """What a stack does not tell: which collective is waited for, how many ranks are to join."""
    last = next(reversed(read_calls(Path(stage.run_folder), position.rank)), None)
    if position.collective == ASYNCHRONOUS and last:
        return dataclasses.replace(position, collective=f"{last.name}, started at {last.place},")
    if last and position.collective == last.name == "init_process_group" and last.tensor:
        words = f"init_process_group for {last.tensor}, and {stage.world} were started,"
        return dataclasses.replace(position, collective=words)
    return position


def _with_worker(stage: Stage, position: RankPosition, status: RankStatus | None) -> RankPosition:
    """A worker of a loader was forked from its rank: it answers the same signal, in the same file."""
    if not position.waits_for_worker or status is None:
        return position
    before = len(_text(stage, position.rank))
    with contextlib.suppress(psutil.NoSuchProcess):
        _signal(child.pid for child in psutil.Process(status.pid).children())
    time.sleep(_ANSWER)
    return dataclasses.replace(position, worker=read_worker(_text(stage, position.rank)[before:]))


def _text(stage: Stage, rank: int) -> str:
    path = Path(stage.run_folder) / f"rank{rank}.stacks"
    return path.read_text(errors="replace") if path.exists() else ""
