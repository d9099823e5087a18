"""How far apart two vectors of numbers are. Rank 0 is compared number by number, others by their sketch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dp2ddp.trace.digests import Floats
from dp2ddp.trace.records import Layout, Vector

TINY = 1e-300
Doubles = npt.NDArray[np.float64]

# from cause to effect: a wrong learning rate makes wrong parameters, a wrong loss makes wrong gradients
KINDS = ("layout", "learning rate", "gradient", "loss", "parameter", "buffer", "steps")


@dataclass(frozen=True)
class Difference:
    """How far apart one thing is at one step."""

    kind: str  # one of KINDS
    size: float  # relative; inf if one side is missing
    step: int
    rank: int
    name: str = ""
    reference_norm: float = 0.0
    norm: float = 0.0
    noise: float = 2.0**-52  # natural noise of this kind, up to this step (tolerance.py)
    allowed: float = 1000 * 2.0**-52
    epsilon: float = 2.0**-52  # one ulp

    @property
    def ratio(self) -> float | None:
        """Of the gradients' norms: W or 1/W tells of a sum that was averaged, or the other way round."""
        return self.norm / self.reference_norm if self.reference_norm > TINY else None

    @property
    def noise_ratio(self) -> float:
        """How often as far apart as DataParallel is from itself when it starts an ulp away."""
        return self.size / self.noise

    @property
    def ulps(self) -> float:
        """Units in the last place of the largest number."""
        return self.size / self.epsilon


def by_values(layout: Layout, away: Doubles, a: Floats, scale: float | None) -> list[float]:
    """Of each tensor: the largest difference, relative to `scale` or to the tensor's own largest value."""
    return [float(away[place].max(initial=0.0) / (scale or largest(a[place]))) for place in layout.slices]


def by_sketch(kind: str, layout: Layout, a: Vector, b: Vector) -> list[float]:
    """Norms of the differences, estimated; relative to the step's largest gradient norm, or the parameter's own."""
    ours, theirs = a.sketched(layout), b.sketched(layout)
    with np.errstate(invalid="ignore", over="ignore"):
        away = np.sqrt(np.mean((ours[:, 1:] - theirs[:, 1:]) ** 2, axis=1))
    away[a.hashes == b.hashes] = 0.0
    scale = ours[:, 0].max(initial=0.0) if kind == "gradient" else ours[:, 0]
    relative: list[float] = (away / np.maximum(scale, TINY)).tolist()
    return relative


def apart(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Doubles:
    """How far apart the numbers are. A run that goes to nan does so on both sides; nan on one side stays nan."""
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is nan
        away = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where((a == b) | ((a != a) & (b != b)), 0.0, away)


def largest(a: npt.NDArray[Any]) -> float:
    """The largest of the finite numbers, and never 0."""
    sizes = np.abs(a.astype(np.float64))
    return max(float(sizes[np.isfinite(sizes)].max(initial=0.0)), TINY)


def of_arrays(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """The largest difference, relative to the largest value."""
    if a.shape != b.shape:
        return float(np.inf)
    return float(apart(a, b).max(initial=0.0) / largest(a))


def agreeing(vectors: Sequence[Vector]) -> tuple[tuple[int, ...], ...]:
    """Ranks in groups of the same bits."""
    groups: dict[bytes, list[int]] = {}
    for rank, vector in enumerate(vectors):
        groups.setdefault(vector.hashes.tobytes(), []).append(rank)
    return tuple(tuple(group) for group in groups.values())
