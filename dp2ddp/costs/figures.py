"""From readings to figures: what a step takes, sends and holds in one mode on one number of devices."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from dp2ddp.costs.readings import Counted, Sent, Timed

Mode = Literal["dp", "ddp"]
NAMES: dict[Mode, str] = {"dp": "DataParallel", "ddp": "DDP"}


@dataclass(frozen=True)
class Spread:
    """Seconds of a step, on rank 0."""

    median: float
    p10: float
    p90: float
    mean: float


class Traffic(NamedTuple):
    """What a step sends, by kind."""

    collectives: dict[str, Sent]
    copies: dict[str, Sent]
    parameter_bytes: int


@dataclass(frozen=True)
class Figures:
    """One mode on one number of devices. Seconds and bytes; counts and sums are those of a step, over all processes."""

    mode: Mode
    world: int
    virtual: bool
    steps: int  # measured
    left_out: int  # steps with an evaluation in them
    step: Spread
    rows: float  # given to the wrapped model
    waiting: float  # for data, on the rank that waits longest
    cpu: float
    resident: tuple[int, ...]  # of each process; 0: not known
    devices: tuple[int, ...]  # the most that lived on each device; empty: not counted
    seconds: tuple[float, ...]  # of each measured step
    collectives: dict[str, Sent] | None = None  # of the rank with the most bytes; None: not counted
    copies: dict[str, Sent] = field(default_factory=dict)  # between DataParallel's devices
    parameters: int = 0  # bytes

    @property
    def rate(self) -> float:
        """Samples a second. By the mean: where workers deliver in bursts, the median step is no average one."""
        return self.rows / self.step.mean if self.step.mean else 0.0

    @property
    def counted(self) -> Traffic | None:
        """What a step sends; None of a run that was only timed."""
        return None if self.collectives is None else Traffic(self.collectives, self.copies, self.parameters)

    @property
    def sent(self) -> Sent:
        """All collectives, or all copies between DataParallel's devices."""
        each = (self.copies if self.mode == "dp" else self.collectives or {}).values()
        return Sent(sum(sent.calls for sent in each), sum(sent.bytes for sent in each))


def spread(seconds: Sequence[float]) -> Spread:
    """ValueError without any."""
    median, mean = statistics.median(seconds), statistics.fmean(seconds)
    # between the two nearest, as numpy does by default
    tenths = statistics.quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else [median]
    return Spread(median, tenths[0], tenths[-1], mean)


def figures(
    mode: Mode, world: int, rounds: Sequence[Sequence[Timed]], counted: Sequence[Counted] = ()
) -> Figures:
    """`rounds`: the readings of each timed run, one a process; at least one step was measured in each.

    A step in which the wrapped model was evaluated as well is left out, unless most are of that kind.
    """
    evaluated = [flag for readings in rounds for flag in readings[0].evaluated]
    keep_all = 2 * sum(evaluated) >= len(evaluated)
    kept = [
        [place for place, flag in enumerate(readings[0].evaluated) if keep_all or not flag]
        for readings in rounds
    ]
    seconds = tuple(
        readings[0].seconds[place] for readings, places in zip(rounds, kept, strict=True) for place in places
    )
    count = len(seconds)
    rows = sum(
        _at(reading.rows, places)
        for readings, places in zip(rounds, kept, strict=True)
        for reading in readings
    )
    waits = [
        sum(_at(readings[rank].waiting, places) for readings, places in zip(rounds, kept, strict=True))
        for rank in range(len(rounds[0]))
    ]
    measured = sum(len(readings[0].seconds) for readings in rounds)
    most = max(
        counted, key=lambda reading: sum(each.bytes for each in reading.collectives.values()), default=None
    )
    return Figures(
        mode=mode,
        world=world,
        virtual=rounds[0][0].virtual,
        steps=count,
        left_out=measured - count,
        step=spread(seconds),
        rows=rows / count,
        waiting=max(waits) / count,
        cpu=sum(reading.cpu for readings in rounds for reading in readings) / measured,
        resident=_highest([reading.resident for reading in readings] for readings in rounds),
        devices=_devices(world, rounds, counted),
        seconds=seconds,
        collectives=most.collectives if most else None,
        copies=counted[0].copies if counted else {},
        parameters=counted[0].parameters if counted else 0,
    )


def with_rows_of(original: Figures, converted: Figures) -> Figures:
    """A version whose wrapper does not show its rows has those of the original: the same batches."""
    return converted if converted.rows else replace(converted, rows=original.rows)


def _at(values: Sequence[float], places: Iterable[int]) -> float:
    """Ranks take the same steps; one that ended early has fewer."""
    return sum(values[place] for place in places if place < len(values))


def _devices(world: int, rounds: Sequence[Sequence[Timed]], counted: Sequence[Counted]) -> tuple[int, ...]:
    """Real ones are asked in the timed runs, virtual ones counted in the counting run; over all processes."""
    real = _highest(_added([reading.devices for reading in readings]) for readings in rounds)
    return (real or _added([reading.devices for reading in counted]))[:world]


def _added(each: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Device by device: a rank that holds something on another one's device counts there."""
    return tuple(sum(column) for column in zip(*each, strict=True))


def _highest(each: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(max(column) for column in zip(*each, strict=True))
