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

from dp2ddp.runtime.hang.collectives import CollectiveCall, read_calls
from dp2ddp.runtime.hang.stacks import ASYNCHRONOUS, RankPosition, read_position
from dp2ddp.runtime.processes import has_ended
from dp2ddp.runtime.run_folder import LAUNCHER, RankStatus, read_statuses
from dp2ddp.runtime.stage import Stage

_ANSWER = 0.3  # seconds


def ask_positions(stage: Stage) -> tuple[RankPosition, ...]:
    """Where each rank is, or how it has ended; takes about 0.3 seconds, in which the ranks answer."""
    statuses = read_statuses(stage)
    if statuses.keys() >= set(stage.ranks):  # they have all come out of the process that starts them
        statuses.pop(LAUNCHER, None)
    _signal(status.pid for status in statuses.values() if not status.is_over)
    time.sleep(_ANSWER)
    ranks = sorted({*stage.ranks, *statuses})
    positions = (_position(stage, rank, statuses.get(rank)) for rank in ranks)
    return tuple(position for position in positions if position)


def ended_positions(stage: Stage) -> tuple[RankPosition, ...]:
    """How ranks ended, of those that have said so; () in a run of one rank."""
    ended = [(rank, each) for rank, each in read_statuses(stage).items() if rank >= 0 and each.is_over]
    return tuple(_end(rank, status) for rank, status in ended if len(stage.ranks) > 1)


def _end(rank: int, status: RankStatus) -> RankPosition:
    if status.error:
        return failed_position(rank, status, without_gloo_details(status.error))
    return RankPosition(rank, ended=f"has ended with exit code {status.code}")


def failed_position(rank: int, status: RankStatus | None, why: str) -> RankPosition:
    """Where a rank failed, if it said so, and why."""
    place = f" at {status.place}" if status and status.place else ""
    return RankPosition(rank, ended=f"failed{place}: {why}")


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
    if status.is_over:
        return _end(rank, status)
    last = next(reversed(read_calls(Path(stage.run_folder), rank)), None)
    if has_ended(status.pid):
        call = f"; its last call that other ranks join was {last}" if last else ""
        return RankPosition(rank, ended=f"is gone: a signal ended it (out of memory?){call}")
    position = read_position(_text(stage, rank), rank, stage.mode)
    return _with_call(stage, position, last) if position and last else position


def _with_call(stage: Stage, position: RankPosition, last: CollectiveCall) -> RankPosition:
    """What a stack does not tell: which collective is waited for, how many ranks are to join."""
    if position.collective == ASYNCHRONOUS:
        return dataclasses.replace(position, collective=f"{last.name}, started at {last.place},")
    if position.collective == last.name == "init_process_group" and last.tensor:
        words = f"init_process_group for {last.tensor}, and {stage.world} were started,"
        return dataclasses.replace(position, collective=words)
    return position


def _text(stage: Stage, rank: int) -> str:
    path = Path(stage.run_folder) / f"rank{rank}.stacks"
    return path.read_text(errors="replace") if path.exists() else ""
