"""What runs cost, as plain data: what one process says of a run, the figures that these make, the result of `bench`.

A *step* is what lies between two steps of the optimizer that stepped first: of a GAN it holds one of each network. No
torch here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

RANK = "rank{}.json"


@dataclass(frozen=True)
class Timed:
    """A timed run, of one process: nothing is recorded or counted in it. One entry for each step behind the warm-up."""

    virtual: bool  # on virtual devices
    steps: int  # optimizer steps that were taken, those of the warm-up included
    seconds: tuple[float, ...] = ()
    waiting: tuple[float, ...] = ()  # seconds inside the loader's __next__
    rows: tuple[int, ...] = ()  # that this process gave to the wrapped model, gradients on
    evaluated: tuple[bool, ...] = ()  # whether the wrapped model ran without gradients, too
    cpu: float = 0.0  # seconds of this process and of those below it, in all these steps
    resident: int = 0  # bytes: the most that this process held in memory in these steps; 0: not known
    devices: tuple[int, ...] = ()  # bytes: the most that lived on each CUDA device; empty on virtual devices


@dataclass(frozen=True)
class Sent:
    """What one kind of collective or copy weighs in a step."""

    calls: float  # a step
    bytes: Annotated[float, Meta(description="the larger of what a rank gives and gets")]  # a step


@dataclass(frozen=True)
class Counted:
    """A counting run, of one process: figures are means of `steps` steps behind a short warm-up."""

    steps: int
    collectives: dict[str, Sent] = field(default_factory=dict)  # allreduce, broadcast, ...: between ranks
    # weights, inputs, ...: between DataParallel's devices
    copies: dict[str, Sent] = field(default_factory=dict)
    devices: tuple[int, ...] = ()  # bytes: the most that lived on each virtual device
    parameters: int = 0  # bytes of the parameters that the first optimizer steps


Reading = TypeVar("Reading", bound=Timed | Counted)


def write(reading: Timed | Counted, folder: Path, rank: int) -> None:
    """Write what one process measured to `folder`, under its rank; whole, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / RANK.format(rank)
    file.with_suffix(".new").write_text(json.dumps(dataclasses.asdict(reading)), encoding="utf-8")
    os.replace(file.with_suffix(".new"), file)


def read(folder: Path, ranks: range, kind: type[Reading]) -> tuple[Reading, ...]:
    """The readings of a run, of the ranks that left one."""
    paths = (folder / RANK.format(rank) for rank in ranks)
    texts = (path.read_text(encoding="utf-8") for path in paths if path.exists())
    return tuple(msgspec.convert(json.loads(text), kind) for text in texts)


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
        (readings, place)
        for readings in rounds
        for place, flag in enumerate(readings[0].evaluated)
        if keep_all or not flag
    ]
    seconds = tuple(readings[0].seconds[place] for readings, place in kept)
    count, measured = len(seconds), sum(len(readings[0].seconds) for readings in rounds)
    rows = sum(_at(reading.rows, place) for readings, place in kept for reading in readings)
    ranks = range(len(rounds[0]))
    waits = [sum(_at(readings[rank].waiting, place) for readings, place in kept) for rank in ranks]
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


def _at(values: Sequence[float], place: int) -> float:
    """Ranks take the same steps; one that ended early has fewer."""
    return values[place] if place < len(values) else 0


def _devices(world: int, rounds: Sequence[Sequence[Timed]], counted: Sequence[Counted]) -> tuple[int, ...]:
    """Real ones are asked in the timed runs, virtual ones counted in the counting run; over all processes."""
    real = _highest(_added([reading.devices for reading in readings]) for readings in rounds)
    return (real or _added([reading.devices for reading in counted]))[:world]


def _added(each: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Device by device: a rank that holds something on another one's device counts there."""
    return tuple(sum(column) for column in zip(*each, strict=True))


def _highest(each: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(max(column) for column in zip(*each, strict=True))


Proof = Literal["same", "different", "not verified"]


@dataclass(frozen=True)
class Sameness:
    """Whether both train the same: never looked at in a timed run, but in short runs of their own."""

    proof: Proof
    steps: int = 0  # that were compared
    text: str = ""  # what differs; of what trains the same, beside the training: lines, files

    @property
    def words(self) -> str:
        """Whether both trained the same, in words."""
        if self.proof == "not verified":
            return "not verified"
        words = f"{self.proof} (verified {self.steps} step{'' if self.steps == 1 else 's'})"
        return f"{words}: {self.text}" if self.text else words


@dataclass(frozen=True)
class Measured:
    """Both modes on one number of devices."""

    world: int
    dp: Figures
    ddp: Figures
    sameness: Sameness

    @property
    def speed_up(self) -> float:
        """Over DataParallel on the same number of devices."""
        return self.dp.step.mean / self.ddp.step.mean


@dataclass(frozen=True)
class Setting:
    """How it was measured."""

    warm_up: Annotated[int, Meta(description="steps dropped at the beginning of each run")]
    steps: Annotated[int, Meta(description="of a run, warm-up included")]
    rounds: Annotated[int, Meta(description="timed runs of each version")]
    processors: int


@dataclass(frozen=True)
class Benchmark:
    """Everything that was found about a script."""

    script: str
    port: str  # a version of the user's own; "" for our conversion
    launch: str
    convert: str
    setting: Setting
    measured: tuple[Measured, ...]
    seconds: float
    remarks: tuple[str, ...] = ()
    surroundings: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""  # why there is nothing about a further number of devices
