"""The runs that `dp2ddp bench` is going to make: how many, and how long those that are left may take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from dp2ddp.progress import clock


class Kind(Enum):
    """What a run is for, and whether it is one process or one for each device."""

    COMPARED = "compared"  # all runs of a comparison, which are made at once
    COUNTED_DP = "counted, DataParallel"
    COUNTED_DDP = "counted, DDP"
    TIMED_DP = "timed, DataParallel"
    TIMED_DDP = "timed, DDP"


_OF_EACH_DEVICE = (Kind.COMPARED, Kind.COUNTED_DDP, Kind.TIMED_DDP)
_OF_ONE_PROCESS = {Kind.COUNTED_DDP: Kind.COUNTED_DP, Kind.TIMED_DDP: Kind.TIMED_DP}


@dataclass
class BenchPlan:
    """Runs that are left, and the seconds that others took."""

    left: list[tuple[Kind, int]]  # for how many devices
    compared: int  # steps of each comparison
    _seconds: dict[Kind, float] = field(
        default_factory=dict
    )  # of a kind's latest run; a device, where it has several

    @classmethod
    def of(cls, worlds: Sequence[int], rounds: int, compared: int) -> BenchPlan:
        """For each number of devices: a comparison of so many steps, two counted runs, and so many rounds of timed
        ones; where the first number is not 1, rounds of one device as well."""
        left: list[tuple[Kind, int]] = []
        for place, world in enumerate(worlds):
            left += [(Kind.COMPARED, world)] * bool(compared) + [
                (Kind.COUNTED_DP, world),
                (Kind.COUNTED_DDP, world),
            ]
            alone = [(Kind.TIMED_DP, 1)] * (world != 1 and not place)
            left += [*alone, (Kind.TIMED_DP, world), (Kind.TIMED_DDP, world)] * rounds
        return cls(left, compared)

    @property
    def announcement(self) -> str:
        """What is going to be done, before the first run."""
        compared, counted, timed = (
            sum(kind in kinds for kind, _ in self.left)
            for kinds in (
                (Kind.COMPARED,),
                (Kind.COUNTED_DP, Kind.COUNTED_DDP),
                (Kind.TIMED_DP, Kind.TIMED_DDP),
            )
        )
        comparisons = f"{compared} comparison{'s' * (compared > 1)} of {self.compared} steps, " * bool(
            compared
        )
        return f"{len(self.left)} runs, one after the other: {comparisons}{counted} that count, {timed} that are timed"

    @contextmanager
    def run(self, kind: Kind, world: int) -> Iterator[None]:
        """What happens within is this run, and it takes as long as one of its kind."""
        started = time.monotonic()
        yield
        if (kind, world) in self.left:
            self.left.remove((kind, world))
        self._seconds[kind] = (time.monotonic() - started) / (world if kind in _OF_EACH_DEVICE else 1)

    def leave_out(self, kind: Kind, world: int) -> None:
        """A run of which nobody expects anything any more."""
        self.left = [each for each in self.left if each != (kind, world)]

    @property
    def rest(self) -> str:
        """How long the runs that are left may take; "" where there are none, or nobody knows."""
        seconds = [self._expected(kind, world) for kind, world in self.left]
        known = [each for each in seconds if each is not None]
        if not known or len(known) < len(seconds):
            return ""
        runs = "run that is" if len(known) == 1 else f"{len(known)} runs that are"
        return f"about {clock(sum(known))} for the {runs} left"

    def _expected(self, kind: Kind, world: int) -> float | None:
        if kind in self._seconds:
            return self._seconds[kind] * (world if kind in _OF_EACH_DEVICE else 1)
        return self._seconds.get(_OF_ONE_PROCESS.get(kind, kind))
