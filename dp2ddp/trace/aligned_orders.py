"""What an aligned pair of runs leaves: DataParallel's batches, what each rank would have taken, and weights taken over.

A line of JSON each. REFERENCE, DataParallel's batches: length of the data set, its number among those of that length,
epoch, and the samples. TRAINED, data sets that its forwards in training are given batches of: length, number. TAKEN, by
rank 0: the fields of Weights. own-PROCESS.jsonl, by each rank: an epoch as above, then what else an Order has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFERENCE, TRAINED, TAKEN = "reference.jsonl", "trained.jsonl", "taken.jsonl"

Epoch = tuple[int, int, int]  # length of the data set, its number among those of that length, epoch
Batch = list[int]
Dataset = tuple[int, int]  # its length, its number among those of that length
Moments = tuple[float, float, float]  # the mean of the values, of their squares, of their fourth powers


@dataclass(frozen=True)
class Order:
    """What a sampler on a rank would have given itself: part `part` of `parts`."""

    epoch: Epoch
    parts: int
    part: int
    samples: tuple[int, ...]


@dataclass(frozen=True)
class Weights:
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


def leave(path: Path, *fields: object) -> None:
    """One line more."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(fields) + "\n")


def read_batches(folder: Path) -> dict[Epoch, list[Batch]]:
    """DataParallel's batches of each epoch."""
    batches: dict[Epoch, list[Batch]] = {}
    for length, ordinal, epoch, batch in _lines(folder / REFERENCE):
        batches.setdefault((length, ordinal, epoch), []).append(batch)
    return batches


def read_own(folder: Path) -> Iterator[Order]:
    """What each rank would have taken by its own sampler, rank after rank."""
    for file in sorted(folder.glob("own-*.jsonl")):
        for length, ordinal, epoch, parts, part, samples in _lines(file):
            yield Order((length, ordinal, epoch), parts, part, tuple(samples))


def read_trained(folder: Path) -> frozenset[Dataset]:
    """The data sets that DataParallel trained on, as (length, ordinal)."""
    return frozenset((length, ordinal) for length, ordinal in _lines(folder / TRAINED))


def read_taken(folder: Path) -> tuple[Weights, ...]:
    """The tensors that ranks took over from DataParallel before training."""
    return tuple(
        Weights(name, count, tuple(reference), tuple(own), correlation)
        for name, count, reference, own, correlation in _lines(folder / TAKEN)
    )


def _lines(path: Path) -> Iterator[Any]:
    if not path.exists():
        return iter(())
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())
