"""Thousands of steps in the width of a page: each column stands for some steps, and keeps the largest of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bins:
    """Columns of a chart; `starts` are the indexes of their first steps."""

    steps: npt.NDArray[np.int64]  # the number of each step
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def whole(self) -> bool:
        """Whether each step has a column of its own."""
        return len(self.starts) == len(self.steps)

    def highs(self, values: npt.NDArray[Any]) -> Doubles:
        """The largest value of each column, (columns,) or (columns, n); nan only where there is no other."""
        largest: Doubles = np.fmax.reduceat(values.astype(np.float64), self.starts, axis=0)
        return largest

    def lows(self, values: npt.NDArray[Any]) -> Doubles:
        """The smallest value of each column; nan only where there is no other."""
        smallest: Doubles = np.fmin.reduceat(values.astype(np.float64), self.starts, axis=0)
        return smallest

    def means(self, values: Doubles) -> Doubles:
        """The mean of each column's numbers; nan only where there is none."""
        known = np.isfinite(values)
        with np.errstate(invalid="ignore"):
            sums = np.add.reduceat(np.where(known, values, 0.0), self.starts)
            means: Doubles = sums / np.add.reduceat(known.astype(np.float64), self.starts)
        return np.where(np.isnan(means), self.highs(values), means)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The first and the last index of each column."""
        yield from zip(
            self.starts.tolist(), [*(self.starts[1:] - 1).tolist(), len(self.steps) - 1], strict=True
        )

    def names(self) -> list[str]:
        """`12`, or `12-15` for a column of four steps."""
        pairs = ((int(self.steps[first]), int(self.steps[last])) for first, last in self.spans())
        return [str(first) if first == last else f"{first}\N{EN DASH}{last}" for first, last in pairs]


def bins_of(steps: npt.NDArray[np.int64], most: int) -> Bins:
    """At most so many columns, as even as can be."""
    count = min(len(steps), most)
    return Bins(steps, np.arange(count, dtype=np.int64) * len(steps) // max(count, 1))
