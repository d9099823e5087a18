"""What comes after the last optimizer step, or without any: losses, and what the models hold at the end.

A parameter that an optimizer has stepped was judged step by step; here are those that none has (hand-made updates,
averages, target networks) or that were changed behind the last step. On rank 0, whose models are kept; on every rank of
a script that has no optimizer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dp2ddp.trace.records import Final, Sort, Trace
from dp2ddp.verify.differences import TINY, Difference, Doubles, apart, apart_by_sketch, largest
from dp2ddp.verify.matching import plain_name

_KINDS = {Sort.BUFFER: "final buffer", Sort.UNSTEPPED: "unstepped parameter"}


@dataclass(frozen=True)
class Apart:
    """A tensor at the end of both."""

    kind: str
    name: str
    size: float
    norms: tuple[float, float]


def ending_differences(reference: Trace, rank: Trace, floor: float) -> Iterator[Difference]:
    """Of what both models hold; `floor`: numbers this close are the same (tolerance.py)."""
    step = len(reference)
    for found in tensors_apart(reference.final, rank.final, floor):
        yield Difference(found.kind, found.size, step, rank.rank, found.name, *found.norms)


def tensors_apart(ours: Final | None, theirs: Final | None, floor: float = 0.0) -> Iterator[Apart]:
    """Those that both have, but for parameters that both left as the last step did."""
    if ours is None or theirs is None:
        return
    sketches = [each.vector.sketched(each.vector.layout) for each in (ours, theirs)]
    for a, b in _pairs(ours, theirs, sketches):
        sorts = Sort(ours.sorts[a]), Sort(theirs.sorts[b])
        if sorts == (Sort.SETTLED, Sort.SETTLED):
            continue
        norms = float(sketches[0][a][0]), float(sketches[1][b][0])
        kind = _KINDS.get(sorts[0], "final parameter")
        yield Apart(kind, ours.vector.layout.names[a], _size(ours, theirs, a, b, sketches, floor), norms)


def without_partner(ours: Final | None, theirs: Final | None) -> tuple[str, ...]:
    """Names of parameters that were not compared: judged by no step, and the other side has none of that name."""
    if ours is None or theirs is None:
        return ()
    there = set(_keys(theirs))
    return tuple(
        name
        for name, key, sort in zip(ours.vector.layout.names, _keys(ours), ours.sorts, strict=True)
        if key not in there and sort in (Sort.UNSTEPPED, Sort.CHANGED)
    )


def _pairs(ours: Final, theirs: Final, sketches: Sequence[Doubles]) -> Iterator[tuple[int, int]]:
    """Places of one name and shape. Two models may use one name: then the nearest go together."""
    places: dict[tuple[object, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, final in enumerate((ours, theirs)):
        for place, key in enumerate(_keys(final)):
            places[key][side].append(place)
    for here, there in places.values():
        free = sorted(
            (_away(sketches, a, b), _is_stepped(ours, a) != _is_stepped(theirs, b), a, b)
            for a in here
            for b in there
        )
        while free:
            *_, a, b = free[0]
            yield a, b
            free = [each for each in free if each[2] != a and each[3] != b]


def _is_stepped(final: Final, place: int) -> bool:
    return final.sorts[place] not in (Sort.BUFFER, Sort.UNSTEPPED)


def _keys(final: Final) -> list[tuple[object, ...]]:
    layout = final.vector.layout
    return [
        (plain_name(name), shape, dtype.startswith("complex"))
        for name, shape, dtype in zip(layout.names, layout.shapes, layout.dtypes, strict=True)
    ]


def _away(sketches: Sequence[Doubles], a: int, b: int) -> float:
    away = _by_sketch(sketches, a, b)
    return away if np.isfinite(away) else float("inf")


def _by_sketch(sketches: Sequence[Doubles], a: int, b: int) -> float:
    return float(apart_by_sketch(sketches[0][a : a + 1], sketches[1][b : b + 1])[0])


def _size(ours: Final, theirs: Final, a: int, b: int, sketches: Sequence[Doubles], floor: float) -> float:
    """The largest difference, relative to the largest number; by sketch, of the norms."""
    if ours.vector.hashes[a] == theirs.vector.hashes[b]:
        return 0.0
    place = ours.vector.layout.slices[a]
    if ours.vector.values is None or theirs.vector.values is None:
        away = _by_sketch(sketches, a, b)
        small = away <= floor * np.sqrt(place.stop - place.start)
        return 0.0 if small else away / max(float(sketches[0][a][0]), TINY)
    x, y = ours.vector.values[place], theirs.vector.values[theirs.vector.layout.slices[b]]
    distances = apart(x, y)
    distances[distances <= floor] = 0.0
    return float(distances.max(initial=0.0) / largest(x))
