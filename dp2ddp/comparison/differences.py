"""How far apart two vectors of numbers are. Rank 0 is compared number by number, others by their sketch.

What comes after the last optimizer step, or without any, is what models hold at the end. A parameter that an optimizer
has stepped was judged step by step; here are those that none has (hand-made updates, averages, target networks) or that
were changed behind the last step. Rank 0, whose models are kept, is compared with DataParallel, and every other rank
with rank 0: a conversion of ours promises that all hold the same, while a port may leave an average to rank 0, which
alone saves it. Of a script that has no optimizer every rank is compared with DataParallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.matching import pairs_by_name, places_by_name, plain_name, taken
from dp2ddp.trace.digests import Doubles, sketch
from dp2ddp.trace.records import Final, FinalKind, Layout, Trace, Vector

TINY = 1e-300
Mask = npt.NDArray[np.bool_]  # elements of a vector

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
AT_END = KINDS[-3:]  # what models hold when the script ends
FACTS = ("layout", "precision", "random streams", "decision", "steps")  # differ, or do not


@dataclass(frozen=True)
class Difference:
    """How far apart one thing is at one step, on one rank.

    `size` is relative: for gradients to the step's largest one, for parameters and buffers to the tensor's own
    largest value, for optimizer states to the largest of their kind ("exp_avg of *"), for losses to the largest so far.
    """

    kind: str  # one of KINDS
    size: float  # inf if one side is missing, and for a fact that differs (FACTS)
    step: int
    rank: int
    name: str = ""  # of the tensor, or what differs in words
    reference_norm: float = 0.0
    norm: float = 0.0
    noise: float = 2.0**-52  # natural noise of this kind, up to this step (tolerance.py)
    allowed: float = 1000 * 2.0**-52  # FACTOR times that
    epsilon: float = 2.0**-52  # one ulp
    room: float = 0.0  # allowed on top for what follows a gradient of pure rounding
    judged: bool = True  # or else evidence for the diagnosis, which does not count

    @property
    def ratio(self) -> float | None:
        """The ratio of the gradients' norms: W or 1/W is a sign of a sum that was averaged, or the other way round."""
        return self.norm / self.reference_norm if self.reference_norm > TINY else None

    @property
    def is_allowed(self) -> bool:
        """Whether it is no larger than what is allowed; nan never is."""
        return self.size <= self.allowed

    @property
    def noise_ratio(self) -> float:
        """Difference / natural noise: how often as far apart as DataParallel is from itself, moved by an ulp."""
        return self.size / self.noise

    @property
    def ulps(self) -> float:
        """The size in ulps, units in the last place of the largest number."""
        return self.size / self.epsilon


def relative_differences(kind: str, a: Vector, b: Vector, left_out: Mask | None = None) -> Doubles:
    """The largest difference in each tensor, (tensors,): of gradients relative to the step's largest one, of parameters
    to the tensor's own largest value.

    `left_out`: elements that are not compared, where values are.
    """
    if np.array_equal(a.hashes, b.hashes):
        return np.zeros(len(a.hashes))
    distances, sizes = distances_and_sizes(a, b, left_out)
    return distances / (sizes.max(initial=TINY) if kind in GRADIENTS else sizes)


def distances_and_sizes(a: Vector, b: Vector, left_out: Mask | None = None) -> tuple[Doubles, Doubles]:
    """The largest |a - b| and the largest |a| of each tensor, at least TINY; from sketches, where not all values were
    kept, the norms of both."""
    if a.values is None or b.values is None:
        expected = a.sketched(a.layout)
        distances, sizes = distances_by_sketch(expected, b.sketched(a.layout)), expected[:, 0]
        distances[a.hashes == b.hashes] = 0.0
        return distances, np.maximum(sizes, TINY)
    apart, values, places = distances_between(a.values, b.values), a.values, a.layout.slices
    if left_out is not None:
        apart[left_out] = 0.0
    distances = np.array([apart[place].max(initial=0.0) for place in places])
    return distances, np.array([largest(values[place]) for place in places])


def norm_of(vector: Vector, place: int) -> float:
    """The norm of one of its tensors."""
    if vector.values is None:
        return float(vector.sketched(vector.layout)[place, 0])
    return float(sketch(vector.values[vector.layout.slices[place]])[0])


def distances_by_sketch(a: Doubles, b: Doubles) -> Doubles:
    """The norm of the difference of each tensor, estimated from two sketches: (tensors, 1 + PROJECTIONS) -> (tensors,).

    A sketch's columns behind the first are projections on random signs (trace/digests.py), each with the expected
    square |a - b|^2; the mean over them is off by a factor of about two at most.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        distances: Doubles = np.sqrt(np.mean((a[:, 1:] - b[:, 1:]) ** 2, axis=1))
    return distances


def distances_between(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Doubles:
    """|a - b| by element, of the shape of both, in float64; 0 where both are nan or the same inf, nan where one is
    nan. Of complex numbers both parts are looked at."""
    if np.iscomplexobj(a) or np.iscomplexobj(b):  # as float64 they would have no imaginary parts
        return np.hypot(distances_between(a.real, b.real), distances_between(a.imag, b.imag))
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is nan
        distances = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where((a == b) | ((a != a) & (b != b)), 0.0, distances)


def largest(a: npt.NDArray[Any]) -> float:
    """The largest size of a finite number, at least TINY: something to divide by."""
    sizes = np.abs(a.astype(np.complex128 if np.iscomplexobj(a) else np.float64))
    return max(float(sizes[np.isfinite(sizes)].max(initial=0.0)), TINY)


def array_difference(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """The largest |a - b|, relative to the largest |a|; inf where the shapes differ."""
    if a.shape != b.shape:
        return float(np.inf)
    return float(distances_between(a, b).max(initial=0.0) / largest(a))


def scaled(vector: Vector, factor: float) -> Vector:
    """All numbers times `factor`; no tensor is then the same to the bit as another."""
    values = None if vector.values is None else vector.values * factor
    sketch = None if vector.sketch is None else vector.sketch * factor
    return Vector(np.zeros_like(vector.hashes), values, sketch, vector.layout)


def agreeing(*kinds: Sequence[Vector]) -> tuple[tuple[int, ...], ...]:
    """Ranks in groups whose tensors, of each of the kinds, have the same bits."""
    groups: dict[bytes, list[int]] = {}
    for rank, vectors in enumerate(zip(*kinds, strict=True)):
        groups.setdefault(b"".join(each.hashes.tobytes() for each in vectors), []).append(rank)
    return tuple(tuple(group) for group in groups.values())


def named_difference(
    expected: Vector, actual: Vector, together: bool, only: frozenset[str] | None = None
) -> tuple[str, float]:
    """The largest difference between tensors of one name; "" and 0 where there are only hashes.

    Relative to the tensor's largest value; with `together`, to that of all tensors of its kind ("exp_avg of *"): a
    bias in front of BatchNorm has a momentum of nothing but rounding.
    """
    pairs = pairs_by_name(
        expected.layout, actual.layout, lambda a, b: float(expected.hashes[a] != actual.hashes[b])
    )
    shared = [pair for pair in pairs if only is None or expected.layout.names[pair[0]] in only]
    a, b = taken(expected, [at for at, _ in shared]), taken(actual, [at for _, at in shared])
    names = a.layout.names
    unlike = [i for i in range(len(names)) if a.hashes[i] != b.hashes[i]]
    if not unlike or any(each.values is None and each.sketch is None for each in (a, b)):
        return "", 0.0
    by_values = a.values is not None and b.values is not None
    reshaped = [i for i in unlike if a.layout.shapes[i] != b.layout.shapes[i]]
    if by_values and reshaped:
        return names[reshaped[0]], float("inf")
    distances, sizes = distances_and_sizes(a, b)
    if by_values and together:
        kinds = np.array([name.partition(" of ")[0] for name in names])
        sizes = np.array([sizes[kinds == kind].max() for kind in kinds])
    relative = distances / sizes
    worst = max(unlike, key=lambda i: relative[i] if relative[i] == relative[i] else np.inf)
    return (names[worst], float(relative[worst])) if relative[worst] else ("", 0.0)


# ---- at the end

_UNSTEPPED = {FinalKind.BUFFER: "final buffer", FinalKind.UNSTEPPED: "unstepped parameter"}


def ending_differences(reference: Trace, rank: Trace, floor: float) -> Iterator[Difference]:
    """Differences in what both models hold when the script ends; numbers within `floor` are the same (tolerance.py)."""
    return tensor_differences(reference.final, rank.final, floor, len(reference), rank.rank)


def rank_differences(rank0: Trace, rank: Trace, floor: float) -> Iterator[Difference]:
    """Differences in what rank 0 and another rank hold when the script ends; `step` is the number of steps.

    But for BatchNorm's running averages: each rank has those of its own rows until the next forward pass, and rank 0's
    are the ones that count.
    """
    tensors = ending_differences(rank0, rank, floor)
    return (each for each in tensors if each.size and not is_batchnorms(each.name))


def is_batchnorms(name: str) -> bool:
    """Whether a buffer of this name is one of BatchNorm's."""
    return "running_" in name or name.endswith("num_batches_tracked")


def tensor_differences(
    expected: Final | None, actual: Final | None, floor: float = 0.0, step: int = 0, rank: int = 0
) -> Iterator[Difference]:
    """Those that both have, but for parameters that both left as the last step did."""
    if expected is None or actual is None:
        return
    a, b = expected.vector, actual.vector
    sketches = a.sketched(a.layout), b.sketched(b.layout)

    def cost(i: int, j: int) -> tuple[float, bool] | None:
        """The nearest go together, those that an optimizer steps with each other."""
        if not _are_alike(a.layout, b.layout, i, j):
            return None
        distance = float(distances_by_sketch(sketches[0][i : i + 1], sketches[1][j : j + 1])[0])
        stepped = (expected.kinds[i] in _UNSTEPPED) != (actual.kinds[j] in _UNSTEPPED)
        return distance if np.isfinite(distance) else np.inf, stepped

    pairs = [
        (i, j)
        for i, j in pairs_by_name(a.layout, b.layout, cost)
        if (expected.kinds[i], actual.kinds[j]) != (FinalKind.SETTLED, FinalKind.SETTLED)
    ]
    a, b = taken(a, [i for i, _ in pairs]), taken(b, [j for _, j in pairs])
    distances, sizes = distances_and_sizes(a, b)
    by_values = a.values is not None and b.values is not None
    distances[distances <= (floor if by_values else floor * np.sqrt(a.layout.sizes))] = 0.0
    for (i, j), name, size in zip(pairs, a.layout.names, (distances / sizes).tolist(), strict=True):
        kind = _UNSTEPPED.get(FinalKind(expected.kinds[i]), "final parameter")
        yield Difference(kind, size, step, rank, name, float(sketches[0][i, 0]), float(sketches[1][j, 0]))


def _are_alike(layout: Layout, other: Layout, a: int, b: int) -> bool:
    complexes = layout.dtypes[a].startswith("complex"), other.dtypes[b].startswith("complex")
    return layout.shapes[a] == other.shapes[b] and complexes[0] == complexes[1]


def without_partner(expected: Final | None, actual: Final | None) -> tuple[str, ...]:
    """Names of parameters that were not compared: judged by no step, and the other side has none of that name."""
    if expected is None or actual is None:
        return ()
    layouts = expected.vector.layout, actual.vector.layout
    there, judged = places_by_name(layouts[1]), (FinalKind.UNSTEPPED, FinalKind.CHANGED)
    return tuple(
        name
        for a, name in enumerate(layouts[0].names)
        if expected.kinds[a] in judged
        and not any(_are_alike(*layouts, a, b) for b in there.get(plain_name(name), ()))
    )
