"""The orders that an aligned pair of runs leaves: DataParallel's batches, and what each rank would have taken.

A line of JSON each: length of the data set, its number among those of that length, epoch, and the samples.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REFERENCE = "reference.jsonl"

Epoch = tuple[int, int, int]  # length of the data set, its number among those of that length, epoch
Batch = list[int]


@dataclass(frozen=True)
class Order:
    """What a sampler on a rank would have given itself: part `part` of `parts`."""

    epoch: Epoch
    parts: int
    part: int
    samples: tuple[int, ...]


def begin_reference(folder: Path) -> None:
    """Anew: DataParallel may be run once more in the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _REFERENCE).write_text("", encoding="utf-8")


def leave_batch(folder: Path, epoch: Epoch, batch: Sequence[object]) -> None:
    """DataParallel's next one."""
    _append(folder / _REFERENCE, [*epoch, batch])


def leave_own(folder: Path, epoch: Epoch, parts: int, part: int, samples: Sequence[object]) -> None:
    """A rank's own."""
    _append(folder / f"own-{os.getpid()}.jsonl", [*epoch, parts, part, samples])


def _append(path: Path, line: Sequence[object]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_batches(folder: Path) -> dict[Epoch, list[Batch]]:
    """DataParallel's batches of each epoch."""
    found: dict[Epoch, list[Batch]] = {}
    for length, ordinal, epoch, batch in _lines(folder / _REFERENCE):
        found.setdefault((length, ordinal, epoch), []).append(batch)
    return found


def read_own(folder: Path) -> Iterator[Order]:
    """Of all ranks."""
    for file in sorted(folder.glob("own-*.jsonl")):
        for length, ordinal, epoch, parts, part, samples in _lines(file):
            yield Order((length, ordinal, epoch), parts, part, tuple(samples))


def _lines(path: Path) -> Iterator[Any]:
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())
