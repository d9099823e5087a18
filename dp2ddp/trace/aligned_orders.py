"""What an aligned pair of runs leaves: DataParallel's batches, what each rank would have taken, and weights taken over.

A line of JSON each. REFERENCE, DataParallel's batches: an epoch, and the samples. TRAINED, data sets that its forwards
in training are given batches of. TAKEN, by rank 0: Weights. own-PROCESS.jsonl, by each rank: Orders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

from dp2ddp.trace.records import json_lines

REFERENCE, TRAINED, TAKEN = "reference.jsonl", "trained.jsonl", "taken.jsonl"

Epoch = tuple[int, int, int]  # length of the data set, its number among those of that length, epoch
Batch = list[int]
Dataset = tuple[int, int]  # its length, its number among those of that length
Moments = tuple[float, float, float]  # the mean of the values, of their squares, of their fourth powers


class Order(Struct, frozen=True, array_like=True):
    """What a sampler on a rank would have given itself: part `part` of `parts`."""

    epoch: Epoch
    parts: int
    part: int
    samples: tuple[Any, ...]  # numbers, unless the sampler is one of its own kind


class Weights(Struct, frozen=True, array_like=True):
    """A tensor that ranks took over from DataParallel before the first forward in training."""

    name: str
    count: int
    reference: Moments
    own: Moments
    correlation: float = 0.0  # of the two: two seeds give none, two checkpoints of one training a high one


def begin(folder: Path, *names: str) -> None:
    """Empty files of these names: an earlier run may have left some in the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("", encoding="utf-8")


def leave(path: Path, what: object) -> None:
    """One line more."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(to_builtins(what)) + "\n")


def read_batches(folder: Path) -> dict[Epoch, list[Batch]]:
    """DataParallel's batches of each epoch."""
    batches: dict[Epoch, list[Batch]] = {}
    for epoch, batch in _lines(folder / REFERENCE, tuple[Epoch, Batch]):
        batches.setdefault(epoch, []).append(batch)
    return batches


def read_own(folder: Path) -> Iterator[Order]:
    """What each rank would have taken by its own sampler, rank after rank."""
    for file in sorted(folder.glob("own-*.jsonl")):
        yield from _lines(file, Order)


def read_trained(folder: Path) -> frozenset[Dataset]:
    """The data sets that DataParallel trained on."""
    return frozenset(_lines(folder / TRAINED, Dataset))


def read_taken(folder: Path) -> tuple[Weights, ...]:
    """The tensors that ranks took over from DataParallel before training."""
    return tuple(_lines(folder / TAKEN, Weights))


def _lines(path: Path, kind: Any) -> Iterator[Any]:
    """Any: each of this kind."""
    return (convert(line, kind) for line in json_lines(path))
