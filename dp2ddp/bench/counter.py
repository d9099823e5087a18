"""Counts what a step moves, sends and holds: an observer of every operation, so nothing is timed beside it."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.bench.readings import Counted, write
from dp2ddp.bench.steps import Steps


class Counter:
    def __init__(self, folder: Path, rank: int, warm_up: int, steps: int, virtual: bool) -> None:
        self._folder, self._rank = folder, rank
        self._steps = Steps(warm_up + steps, lambda number: None)

    def finish(self) -> None:
        write(Counted(self._steps.taken), self._folder, self._rank)
