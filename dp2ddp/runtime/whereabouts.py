"""Asks each rank of a run where it stands, and waits a moment for the answers: the parent's side, without torch."""

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

from dp2ddp.runtime.calls import read_calls
from dp2ddp.runtime.desk import LAUNCHER, Note, read_note
from dp2ddp.runtime.stacks import ASYNCHRONOUS, Stand, read_stand, read_worker
from dp2ddp.runtime.stage import Stage

_ANSWER = 0.3  # seconds


def ask_where(stage: Stage) -> tuple[Stand, ...]:
    """Where each rank stands, or how it has ended."""
    desk = Path(stage.desk)
    notes = {rank: read_note(desk, rank) for rank in stage.ranks}
    if any(note is None for note in notes.values()) and (launcher := read_note(desk, LAUNCHER)):
        notes[LAUNCHER] = launcher
    _signal(note.pid for note in notes.values() if note and note.code is None)
    time.sleep(_ANSWER)
    stands = [_stand(stage, rank, note) for rank, note in sorted(notes.items())]
    return tuple(_with_worker(stage, stand, notes[stand.rank]) for stand in stands if stand)


def ended_stands(stage: Stage) -> tuple[Stand, ...]:
    """Of the ranks that have said how they ended, where there are several."""
    notes = ((rank, read_note(Path(stage.desk), rank)) for rank in stage.ranks if len(stage.ranks) > 1)
    return tuple(_end(rank, note) for rank, note in notes if note and note.code is not None)


def _end(rank: int, note: Note) -> Stand:
    place = f" at {note.place}" if note.place else ""
    words = f"failed{place}: {told(note.error)}" if note.error else f"has ended with exit code {note.code}"
    return Stand(rank, ended=words)


def told(error: str) -> str:
    """What gloo says when another rank has gone names files of its own and wishes good luck."""
    found = _GLOO.match(error)
    return f"RuntimeError: {found[1]}, since another rank has gone" if found else error


_GLOO = re.compile(r"RuntimeError: \[[^]]*/gloo/[^]]*\] (.*?)(?: \[[^]]*\]:\d+.*)", re.DOTALL)


def _signal(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def _stand(stage: Stage, rank: int, note: Note | None) -> Stand | None:
    if note is None:
        return Stand(rank, ended="has not joined" if stage.starts_ranks else "has not begun")
    if note.code is not None:
        return _end(rank, note)
    if not psutil.pid_exists(note.pid) or psutil.Process(note.pid).status() == psutil.STATUS_ZOMBIE:
        return Stand(rank, ended="is gone: a signal ended it (out of memory?)")
    stand = read_stand(_text(stage, rank), rank, stage.mode)
    return stand and _with_call(stage, stand)


def _with_call(stage: Stage, stand: Stand) -> Stand:
    """What a stack does not tell: which collective is waited for, how many ranks are to join."""
    last = next(reversed(read_calls(Path(stage.desk), stand.rank)), None)
    if stand.collective == ASYNCHRONOUS and last:
        return dataclasses.replace(stand, collective=f"{last.name}, started at {last.place},")
    if last and stand.collective == last.name == "init_process_group" and last.tensor:
        words = f"init_process_group for {last.tensor}, and {stage.world} were started,"
        return dataclasses.replace(stand, collective=words)
    return stand


def _with_worker(stage: Stage, stand: Stand, note: Note | None) -> Stand:
    """A worker of a loader was forked from its rank: it answers the same signal, in the same file."""
    if not stand.waits_for_worker or note is None:
        return stand
    before = len(_text(stage, stand.rank))
    with contextlib.suppress(psutil.NoSuchProcess):
        _signal(child.pid for child in psutil.Process(note.pid).children())
    time.sleep(_ANSWER)
    return dataclasses.replace(stand, worker=read_worker(_text(stage, stand.rank)[before:]))


def _text(stage: Stage, rank: int) -> str:
    path = Path(stage.desk) / f"rank{rank}.stacks"
    return path.read_text(errors="replace") if path.exists() else ""
