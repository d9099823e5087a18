"""What is allowed at each step: so many times the natural noise (verify/tolerance.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2ddp.report.bins import Doubles
from dp2ddp.verify.compare import Comparison
from dp2ddp.verify.series import Series
from dp2ddp.verify.tolerance import FACTOR, FLOAT64


@dataclass(frozen=True)
class Judged:
    """Of each step the kind of difference that is nearest to its limit, or furthest beyond it."""

    sizes: Doubles
    limits: Doubles


def limits(comparison: Comparison, kind: str, count: int) -> Doubles:
    """Of gradients or parameters; an ulp counts as noise where nothing asked for a second run."""
    natural = comparison.natural
    if natural is None:
        return np.full(count, FACTOR * FLOAT64.epsilon)
    return np.array([natural.allowed(kind, index) for index in range(count)])


def judged(comparison: Comparison, series: Series) -> Judged:
    count = len(series.steps)
    sizes = [worst(values) for values in (series.gradients, series.parameters)]
    allowed = [limits(comparison, kind, count) for kind in ("gradient", "parameter")]
    shares = [
        np.nan_to_num(size / limit, nan=-1.0, posinf=np.inf)
        for size, limit in zip(sizes, allowed, strict=True)
    ]
    second = shares[1] > shares[0]
    return Judged(np.where(second, sizes[1], sizes[0]), np.where(second, allowed[1], allowed[0]))


def worst(values: Doubles) -> Doubles:
    """Of each step over all parameters; nan where there was nothing to compare."""
    found: Doubles = np.fmax.reduce(values, axis=1, initial=np.nan)
    return found
