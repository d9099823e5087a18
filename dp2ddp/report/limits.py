"""What is allowed at each step: so many times the natural noise (comparison/tolerance.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FACTOR, FLOAT64
from dp2ddp.report.bins import Doubles


@dataclass(frozen=True)
class NearestLimit:
    """For each step the kind of difference that is nearest to its limit, or furthest beyond it."""

    sizes: Doubles  # (steps,), relative
    limits: Doubles  # (steps,)


def limits(comparison: Comparison, kind: str, count: int) -> Doubles:
    """What is allowed for gradients or parameters at each step: (count,), relative.

    Where no noise was measured it is one ulp.
    """
    natural = comparison.natural
    if natural is None:
        return np.full(count, FACTOR * FLOAT64.epsilon)
    return np.array([natural.allowed(kind, index) for index in range(count)])


def nearest_limits(comparison: Comparison, series: Series) -> NearestLimit:
    """For each step the kind of difference, gradients or parameters, that is nearest to its limit."""
    count = len(series.steps)
    sizes = [worst(values) for values in (series.gradients, series.parameters)]
    allowed = [limits(comparison, kind, count) for kind in ("gradient", "parameter")]
    shares = [
        np.nan_to_num(size / limit, nan=-1.0, posinf=np.inf)
        for size, limit in zip(sizes, allowed, strict=True)
    ]
    second = shares[1] > shares[0]
    return NearestLimit(np.where(second, sizes[1], sizes[0]), np.where(second, allowed[1], allowed[0]))


def worst(values: Doubles) -> Doubles:
    """The largest of all parameters at each step: (steps, parameters) -> (steps,); nan where there is none."""
    largest: Doubles = np.fmax.reduce(values, axis=1, initial=np.nan)
    return largest
