"""What one process says of the run that it took part in, as plain data that crosses processes. No torch here.

A *step* here is what lies between two steps of the optimizer that stepped first: of a GAN it holds one of each network.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

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
    bytes: Annotated[float, msgspec.Meta(description="the larger of what a rank gives and gets")]  # a step


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
