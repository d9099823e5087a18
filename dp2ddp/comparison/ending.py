"""What comes after the last optimizer step, or without any: losses, and what the models hold at the end.

A parameter that an optimizer has stepped was judged step by step; here are those that none has (hand-made updates,
averages, target networks) or that were changed behind the last step. Rank 0, whose models are kept, is compared with
DataParallel, and every other rank with rank 0: a conversion of ours promises that all hold the same, while a port may
leave an average to rank 0, which alone saves it. Of a script that has no optimizer every rank is compared with
DataParallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.differences import (
    TINY,
    Difference,
    distances_between,
    distances_by_sketch,
    largest,
)
from dp2ddp.comparison.matching import pairs_by_name, places_by_name, plain_name
from dp2ddp.trace.digests import Doubles
from dp2ddp.trace.records import Final, FinalKind, Layout, Trace

_KINDS = {FinalKind.BUFFER: "final buffer", FinalKind.UNSTEPPED: "unstepped parameter"}


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
    sketches = [each.vector.sketched(each.vector.layout) for each in (expected, actual)]
    layouts = expected.vector.layout, actual.vector.layout

    def cost(a: int, b: int) -> tuple[float, bool] | None:
        """The nearest go together, those that an optimizer steps with each other."""
        distance = _by_sketch(sketches, a, b)
        stepped = _is_stepped(expected, a) != _is_stepped(actual, b)
        return (
            (distance if np.isfinite(distance) else np.inf, stepped) if _are_alike(*layouts, a, b) else None
        )

    for a, b in pairs_by_name(*layouts, cost):
        kinds = FinalKind(expected.kinds[a]), FinalKind(actual.kinds[b])
        if kinds == (FinalKind.SETTLED, FinalKind.SETTLED):
            continue
        norms = float(sketches[0][a][0]), float(sketches[1][b][0])
        kind = _KINDS.get(kinds[0], "final parameter")
        size = _size(expected, actual, a, b, sketches, floor)
        yield Difference(kind, size, step, rank, layouts[0].names[a], *norms)


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


def _is_stepped(final: Final, place: int) -> bool:
    return final.kinds[place] not in (FinalKind.BUFFER, FinalKind.UNSTEPPED)


def _by_sketch(sketches: Sequence[Doubles], a: int, b: int) -> float:
    return float(distances_by_sketch(sketches[0][a : a + 1], sketches[1][b : b + 1])[0])


def _size(expected: Final, actual: Final, a: int, b: int, sketches: Sequence[Doubles], floor: float) -> float:
    """The largest difference, relative to the largest number; by sketch, of the norms."""
    if expected.vector.hashes[a] == actual.vector.hashes[b]:
        return 0.0
    place = expected.vector.layout.slices[a]
    if expected.vector.values is None or actual.vector.values is None:
        distance = _by_sketch(sketches, a, b)
        small = distance <= floor * np.sqrt(place.stop - place.start)
        return 0.0 if small else distance / max(float(sketches[0][a][0]), TINY)
    x, y = expected.vector.values[place], actual.vector.values[actual.vector.layout.slices[b]]
    distances = distances_between(x, y)
    distances[distances <= floor] = 0.0
    return float(distances.max(initial=0.0) / largest(x))
