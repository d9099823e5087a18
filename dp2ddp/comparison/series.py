"""What the charts of a report draw: one row of figures for each optimizer step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.noise import Noise
from dp2ddp.comparison.step_table import StepRow
from dp2ddp.trace.digests import Doubles as Doubles  # for reports, too
from dp2ddp.trace.records import Trace


class Peak(NamedTuple):
    """The largest difference, and its step."""

    size: float
    step: int


class Ends(NamedTuple):
    """The losses of the first and of the last step: DataParallel, then each rank."""

    first: list[float]
    last: list[float]


@dataclass(frozen=True)
class Apart:
    """How far a parameter's gradient and its value come apart at most; None: not at all."""

    name: str
    gradient: Peak | None
    parameter: Peak | None

    @property
    def size(self) -> float:
        return max((peak.size for peak in (self.gradient, self.parameter) if peak), default=0.0)


@dataclass(frozen=True)
class Series:
    """Differences are relative, of the worst rank; nan says that there was nothing to compare."""

    names: tuple[str, ...]  # parameters
    steps: npt.NDArray[np.int64]
    gradients: Doubles  # (steps, names): to the step's largest gradient
    parameters: Doubles  # (steps, names): to the parameter's largest value
    noise: Doubles | None  # (steps,) the same between two DataParallel runs whose inputs are one ulp apart
    losses: Doubles  # (steps, 1 + world): DataParallel, then each rank
    rows: npt.NDArray[np.int64]  # (steps, world): rows of each rank
    learning_rates: Doubles  # (steps, 2, groups): DataParallel, rank 0; nan: that optimizer has fewer groups

    @property
    def count(self) -> int:
        """How many steps there are."""
        return len(self.steps)

    @property
    def width(self) -> int:
        """How many parameters there are."""
        return len(self.names)

    @property
    def ends(self) -> Ends:
        """The losses of the first and of the last step; nothing where there is none."""
        return Ends(*(losses.reshape(-1).tolist() for losses in (self.losses[:1], self.losses[-1:])))

    @property
    def apart(self) -> list[Apart]:
        """The parameters that come apart at all, the furthest first."""
        pairs = zip(self.names, self.gradients.T, self.parameters.T, strict=True)
        all_parameters = (Apart(name, *map(self._peak, values)) for name, *values in pairs)
        return sorted((each for each in all_parameters if each.size), key=lambda each: -each.size)

    def _peak(self, values: Doubles) -> Peak | None:
        known = np.nan_to_num(values, nan=0.0, posinf=np.inf)
        at = int(known.argmax()) if len(known) else 0
        return Peak(float(known[at]), int(self.steps[at])) if known.any() else None

    @property
    def furthest(self) -> list[str]:
        """At each step the parameter whose gradient is furthest apart; "" where none is."""
        sizes = np.nan_to_num(self.gradients, nan=0.0, posinf=np.inf)
        return [self.names[row.argmax()] if row.any() else "" for row in sizes]


def series_of(
    reference: Trace, ranks: Sequence[Trace], all_rows: Sequence[StepRow], natural: Noise | None
) -> Series:
    """Over all steps that DataParallel and every rank took, also those behind the first difference."""
    names = tuple(dict.fromkeys(name for layout in reference.layouts for name in layout.names))
    lines, world = (*reference.lines, *ranks[0].lines), len(ranks)
    groups = max((len(line["learning_rates"]) for line in lines), default=0)
    rows = [row for row in all_rows if row.rows]
    series = Series(
        names=names,
        steps=np.array([row.step for row in rows], dtype=np.int64),
        gradients=np.full((len(rows), len(names)), np.nan),
        parameters=np.full((len(rows), len(names)), np.nan),
        noise=None if natural is None else natural.each_step(len(rows)),
        losses=np.array([row.losses for row in rows]).reshape(-1, 1 + world),
        rows=np.array([row.rows for row in rows], dtype=np.int64).reshape(-1, world),
        learning_rates=np.full((len(rows), 2, groups), np.nan),
    )
    columns = {name: column for column, name in enumerate(names)}
    for index, row in enumerate(rows):
        places = [columns[name] for name in row.names]
        series.gradients[index, places] = row.worst["gradient"]
        series.parameters[index, places] = row.worst["parameter"]
        for side, rates in enumerate(row.learning_rates):
            series.learning_rates[index, side, : len(rates)] = rates
    return series


def worst(values: Doubles) -> Doubles:
    """The largest of all parameters at each step: (steps, parameters) -> (steps,); nan where there is none."""
    largest: Doubles = np.fmax.reduce(values, axis=1, initial=np.nan)
    return largest
