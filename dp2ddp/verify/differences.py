"""How far apart two vectors of numbers are. Rank 0 is compared number by number, others by their sketch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dp2ddp.trace.digests import Floats
from dp2ddp.trace.records import Layout, Vector
from dp2ddp.verify.matching import plain_name

TINY = 1e-300
Doubles = npt.NDArray[np.float64]

# from cause to effect: a wrong learning rate makes wrong parameters, a wrong loss makes wrong gradients
KINDS = (
    "initial state",
    "layout",
    "learning rate",
    "precision",
    "random streams",
    "gradient before clipping",
    "gradient",
    "loss",
    "decision",
    "parameter",
    "optimizer state",
    "buffer",
    "steps",
    "unstepped parameter",
    "final parameter",
    "final buffer",
)
GRADIENTS = ("gradient before clipping", "gradient")
AT_END = KINDS[-3:]  # what models hold when the script ends (ending.py)
FACTS = ("layout", "precision", "random streams", "decision", "steps")  # differ, or do not


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
    away = apart_by_sketch(ours, theirs)
    away[a.hashes == b.hashes] = 0.0
    scale = ours[:, 0].max(initial=0.0) if kind in GRADIENTS else ours[:, 0]
    relative: list[float] = (away / np.maximum(scale, TINY)).tolist()
    return relative


def apart_by_sketch(a: Doubles, b: Doubles) -> Doubles:
    """The norm of the difference of each tensor, estimated from two sketches of it."""
    with np.errstate(invalid="ignore", over="ignore"):
        away: Doubles = np.sqrt(np.mean((a[:, 1:] - b[:, 1:]) ** 2, axis=1))
    return away


def apart(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Doubles:
    """How far apart the numbers are. A run that goes to nan does so on both sides; nan on one side stays nan."""
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is nan
        away = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where((a == b) | ((a != a) & (b != b)), 0.0, away)


def largest(a: npt.NDArray[Any]) -> float:
    """The largest of the finite numbers, and never 0."""
    sizes = np.abs(a.astype(np.float64))
    return max(float(sizes[np.isfinite(sizes)].max(initial=0.0)), TINY)


def of_arrays(a: npt.NDArray[Any], b: npt.NDArray[Any], scale: float | None = None) -> float:
    """The largest difference, relative to `scale` or to the largest value; inf for other shapes."""
    if a.shape != b.shape:
        return float(np.inf)
    return float(apart(a, b).max(initial=0.0) / (scale or largest(a)))


def unclipped_apart(layout: Layout, a: Vector, b: Vector) -> list[float]:
    """Of each tensor's gradient before clipping: the largest difference, relative to the step's largest gradient."""
    if a.values is None or b.values is None:
        return by_sketch(GRADIENTS[0], layout, a, b)
    return by_values(layout, apart(a.values, b.values), a.values, largest(a.values))


def scaled(vector: Vector, factor: float) -> Vector:
    """All numbers times `factor`; no tensor is then the same to the bit as another."""
    values = None if vector.values is None else vector.values * factor
    sketch = None if vector.sketch is None else vector.sketch * factor
    return Vector(np.zeros_like(vector.hashes), values, sketch, vector.layout)


def agreeing(vectors: Sequence[Vector]) -> tuple[tuple[int, ...], ...]:
    """Ranks in groups of the same bits."""
    groups: dict[bytes, list[int]] = {}
    for rank, vector in enumerate(vectors):
        groups.setdefault(vector.hashes.tobytes(), []).append(rank)
    return tuple(tuple(group) for group in groups.values())


def of_named(
    ours: Vector, theirs: Vector, together: bool, wanted: frozenset[str] | None = None
) -> tuple[str, float]:
    """The largest difference between tensors of one name, as far as their values were kept on both sides.

    Relative to the tensor's largest value; with `together`, to that of all tensors of its sort ("exp_avg of *"): a
    bias in front of BatchNorm has a momentum of nothing but rounding.
    """
    shared = list(_shared(ours, theirs, wanted))
    different = [(name, a, b) for name, a, b in shared if ours.hashes[a] != theirs.hashes[b]]
    if not different:
        return "", 0.0
    if ours.values is None or theirs.values is None:
        return _of_sketched(ours, theirs, different)
    scales = _scales(ours, [(name, at) for name, at, _ in shared]) if together else {}
    worst, largest_yet = "", 0.0
    for name, at, other in different:
        a, b = ours.values[ours.layout.slices[at]], theirs.values[theirs.layout.slices[other]]
        size = of_arrays(a, b, scales.get(_sort(name)))
        if not size <= largest_yet:
            worst, largest_yet = name, size
    return worst, largest_yet


def _shared(ours: Vector, theirs: Vector, wanted: frozenset[str] | None) -> Iterator[tuple[str, int, int]]:
    """Name, place in ours, place in theirs. Two models may use one name: then equal tensors go together first."""
    free: dict[str, list[int]] = {}
    for place, name in enumerate(theirs.layout.names):
        free.setdefault(plain_name(name), []).append(place)
    places = [at for at, name in enumerate(ours.layout.names) if wanted is None or name in wanted]
    later: list[tuple[str, int]] = []
    for at in places:
        name = ours.layout.names[at]
        equal = [place for place in free.get(plain_name(name), ()) if theirs.hashes[place] == ours.hashes[at]]
        if equal:
            free[plain_name(name)].remove(equal[0])
            yield name, at, equal[0]
        else:
            later.append((name, at))
    for name, at in later:
        if free.get(plain_name(name)):
            yield name, at, free[plain_name(name)].pop(0)


def _of_sketched(
    ours: Vector, theirs: Vector, different: Sequence[tuple[str, int, int]]
) -> tuple[str, float]:
    """The same where not all values were kept; where there are only hashes, nothing can be said of how far."""
    if any(each.values is None and each.sketch is None for each in (ours, theirs)):
        return "", 0.0
    names, at, others = zip(*different, strict=True)
    a = ours.sketched(ours.layout)[list(at)]
    away = apart_by_sketch(a, theirs.sketched(theirs.layout)[list(others)]) / np.maximum(a[:, 0], TINY)
    size, name = max(zip(away.tolist(), names, strict=True))
    return name, size


def _sort(name: str) -> str:
    return name.partition(" of ")[0]


def _scales(vector: Vector, places: Sequence[tuple[str, int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    assert vector.values is not None
    for name, at in places:
        found[_sort(name)] = max(
            found.get(_sort(name), TINY), largest(vector.values[vector.layout.slices[at]])
        )
    return found
