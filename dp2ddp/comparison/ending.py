"""What comes after the last optimizer step, or without any: losses, and what the models hold at the end.

A parameter that an optimizer has stepped was judged step by step; here are those that none has (hand-made updates,
averages, target networks) or that were changed behind the last step. Rank 0, whose models are kept, is compared with
DataParallel, and every other rank with rank 0: a conversion of ours promises that all hold the same, while a port may
leave an average to rank 0, which alone saves it. Of a script that has no optimizer every rank is compared with
DataParallel.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.differences import Difference, distances_and_sizes, distances_by_sketch
from dp2ddp.comparison.matching import pairs_by_name, places_by_name, plain_name, taken
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
    a, b = expected.vector, actual.vector
    sketches = a.sketched(a.layout), b.sketched(b.layout)

    def cost(i: int, j: int) -> tuple[float, bool] | None:
        """The nearest go together, those that an optimizer steps with each other."""
        if not _are_alike(a.layout, b.layout, i, j):
            return None
        distance = float(distances_by_sketch(sketches[0][i : i + 1], sketches[1][j : j + 1])[0])
        stepped = _is_stepped(expected, i) != _is_stepped(actual, j)
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
        kind = _KINDS.get(FinalKind(expected.kinds[i]), "final parameter")
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


def _is_stepped(final: Final, place: int) -> bool:
    return final.kinds[place] not in (FinalKind.BUFFER, FinalKind.UNSTEPPED)
