"""What an aligned pair of runs leaves: DataParallel's batches, what each rank would have taken, and weights taken over.

Of orders a line of JSON each: length of the data set, its number among those of that length, epoch, and the samples.
Of weights: name, count, moments of DataParallel's numbers and of the ranks' own, their correlation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REFERENCE = "reference.jsonl"
_TRAINED = "trained.jsonl"
_TAKEN = "taken.jsonl"

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


def begin_reference(folder: Path) -> None:
    """Anew: DataParallel may be run once more in the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_REFERENCE, _TRAINED):
        (folder / name).write_text("", encoding="utf-8")


def leave_batch(folder: Path, epoch: Epoch, batch: Sequence[object]) -> None:
    """DataParallel's next one."""
    _append(folder / _REFERENCE, [*epoch, batch])


def leave_trained(folder: Path, dataset: Dataset) -> None:
    """A data set that DataParallel's forwards in training are given batches of."""
    _append(folder / _TRAINED, dataset)


def leave_taken(folder: Path, weights: Sequence[Weights]) -> None:
    """By rank 0."""
    (folder / _TAKEN).write_text("", encoding="utf-8")
    for each in weights:
        _append(folder / _TAKEN, [each.name, each.count, each.reference, each.own, each.correlation])


def leave_own(folder: Path, epoch: Epoch, parts: int, part: int, samples: Sequence[object]) -> None:
    """A rank's own."""
    _append(folder / f"own-{os.getpid()}.jsonl", [*epoch, parts, part, samples])


def _append(path: Path, line: Sequence[object]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_batches(folder: Path) -> dict[Epoch, list[Batch]]:
    """DataParallel's batches of each epoch."""
    batches: dict[Epoch, list[Batch]] = {}
    for length, ordinal, epoch, batch in _lines(folder / _REFERENCE):
        batches.setdefault((length, ordinal, epoch), []).append(batch)
    return batches


def read_own(folder: Path) -> Iterator[Order]:
    """What each rank would have taken by its own sampler, rank after rank."""
    for file in sorted(folder.glob("own-*.jsonl")):
        for length, ordinal, epoch, parts, part, samples in _lines(file):
            yield Order((length, ordinal, epoch), parts, part, tuple(samples))


def read_trained(folder: Path) -> frozenset[Dataset]:
    """The data sets that DataParallel trained on, as (length, ordinal)."""
    return frozenset((length, ordinal) for length, ordinal in _lines(folder / _TRAINED))


def read_taken(folder: Path) -> tuple[Weights, ...]:
    """The tensors that ranks took over from DataParallel before training."""
    return tuple(
        Weights(name, count, tuple(reference), tuple(own), correlation)
        for name, count, reference, own, correlation in _lines(folder / _TAKEN)
    )


def _lines(path: Path) -> Iterator[Any]:
    if not path.exists():
        return iter(())
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())
