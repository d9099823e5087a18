"""Which of a rank's steps stand for which of DataParallel's, and in which order its tensors lie. Pure.

A port may build its optimizers in another order, put parameters into them in another order, and have optimizers of its
own (the shards of ZeRO). So optimizers are matched by the names and shapes of their parameters, and the k-th step of
one is the k-th of the other.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dp2ddp.trace.records import Layout, Step, Trace, Vector

_WRAPPERS = frozenset({"module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module"})


@dataclass(frozen=True)
class Matching:
    """Which of a rank's steps stand for which of DataParallel's."""

    steps: tuple[int, ...]  # for each step of DataParallel, as far as there is one, the rank's
    left_out: int = 0  # steps of optimizers that DataParallel has no match for


def match(reference: Trace, rank: Trace) -> Matching:
    """In order where that fits; else optimizer by optimizer; in order again where even that does not."""
    expected, actual = _taken(reference), _taken(rank)
    in_order = Matching(tuple(range(min(len(expected), len(actual)))))
    if all(order_of(a[1], b[1]) is not None for a, b in zip(expected, actual, strict=False)) and len(
        expected
    ) == len(actual):
        return in_order
    partners = _partners(dict(reversed(expected)), dict(reversed(actual)))
    if partners is None:
        return in_order
    queues = {
        own: deque(i for i, (ordinal, _) in enumerate(actual) if ordinal == other)
        for own, other in partners.items()
    }
    steps: list[int] = []
    for ordinal, _ in expected:
        if not queues[ordinal]:
            break
        steps.append(queues[ordinal].popleft())
    return Matching(tuple(steps), sum(ordinal not in partners.values() for ordinal, _ in actual))


def _taken(trace: Trace) -> list[tuple[int, Layout]]:
    """The optimizer of each step, and its parameters."""
    return [(line["optimizer"], trace.layouts[line["layout"]]) for line in trace.lines]


def _partners(expected: dict[int, Layout], actual: dict[int, Layout]) -> dict[int, int] | None:
    """Optimizer of DataParallel -> of the rank; None if one has no partner."""
    partners: dict[int, int] = {}
    for ordinal, layout in sorted(expected.items()):
        free = [
            other
            for other, their in sorted(actual.items())
            if other not in partners.values() and order_of(layout, their) is not None
        ]
        if not free:
            return None
        partners[ordinal] = min(free, key=lambda other: (_names(actual[other]) != _names(layout), other))
    return partners


def _names(layout: Layout) -> Counter[str]:
    return Counter(map(plain_name, layout.names))


def plain_name(name: str) -> str:
    """Without what wrappers put in front of it or between: `weight`, `exp_avg of weight`."""
    sort, of, path = name.rpartition(" of ")
    return sort + of + ".".join(part for part in path.split(".") if part not in _WRAPPERS)


@lru_cache(maxsize=256)
def order_of(layout: Layout, other: Layout) -> tuple[int, ...] | None:
    """The place in `other` of each tensor of `layout`; None if they are not the same tensors."""
    expected, actual = (tuple(map(plain_name, each.names)) for each in (layout, other))
    in_order = tuple(range(len(expected)))
    if expected == actual or set(expected) != set(actual):  # with other names, the order is all there is
        return in_order if layout.shapes == other.shapes else None
    places = {name: place for place, name in enumerate(actual)}
    order = tuple(places[name] for name in expected)
    if len(places) != len(actual) or tuple(other.shapes[place] for place in order) != layout.shapes:
        return None
    return order


def pairs_by_name(
    expected: Layout, actual: Layout, cost: Callable[[int, int], Any]
) -> Iterator[tuple[int, int]]:
    """The places of two tensors of one name. Two models may use one name: then the cheapest go together first; those
    without a cost, None, never do."""
    there = places_by_name(actual)
    for name, here in places_by_name(expected).items():
        costs = ((cost(a, b), a, b) for a in here for b in there.get(name, ()))
        free = sorted(each for each in costs if each[0] is not None)
        while free:
            _, a, b = free[0]
            yield a, b
            free = [each for each in free if each[1] != a and each[2] != b]


def places_by_name(layout: Layout) -> dict[str, list[int]]:
    """Plain name -> the places of the tensors that have it."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(layout.names):
        places[plain_name(name)].append(place)
    return places


def matched_steps(trace: Trace, steps: Sequence[int]) -> Iterator[Step]:
    """The steps of these numbers in this order, each read once; what comes too early waits."""
    source, waiting = trace.steps(), dict[int, Step]()
    for number in steps:
        while number not in waiting:
            step = next(source)
            waiting[step.number] = step
        yield waiting.pop(number)


def in_order_of(step: Step, layout: Layout) -> Step | None:
    """The step with its tensors in the order of `layout`; None if they are not the same tensors."""
    order = order_of(layout, step.layout)
    if order is None or order == tuple(range(len(order))):
        return step if order is not None else None
    unclipped = None if step.unclipped is None else taken(step.unclipped, order, layout)
    gradients, parameters = (taken(each, order, layout) for each in (step.gradients, step.parameters))
    return dataclasses.replace(
        step, layout=layout, gradients=gradients, parameters=parameters, unclipped=unclipped
    )


def taken(vector: Vector, places: Sequence[int], layout: Layout | None = None) -> Vector:
    """Its tensors at these places, one behind the other; `layout`: theirs under other names."""
    own, values, at = vector.layout, vector.values, list(places)
    names, shapes = [own.names[i] for i in at], [own.shapes[i] for i in at]
    return Vector(
        vector.hashes[at],
        None if values is None else np.concatenate([values[:0], *(values[own.slices[i]] for i in at)]),
        None if vector.sketch is None else vector.sketch[at],
        layout or Layout(tuple(names), tuple(shapes), tuple(own.dtypes[i] for i in at)),
    )


@dataclass(frozen=True)
class OptimizerStart:
    """What an optimizer begins with."""

    step: int  # its first one
    own: frozenset[str]  # names of its parameters, without those that another optimizer has stepped before
    expected: Vector
    ranks: tuple[tuple[int, Vector], ...]  # of each rank that comes so far


def starts(
    reference: Trace, ranks: Sequence[Trace], matched: Sequence[Sequence[int]]
) -> Iterator[OptimizerStart]:
    """Where DataParallel's optimizers begin, by their first steps; `matched`: each rank's steps, by DataParallel's.

    What another optimizer has stepped before is compared after each step, without its rounding zeros.
    """
    names: dict[int, set[str]] = defaultdict(set)
    firsts: dict[int, int] = {}
    for step, (optimizer, layout) in enumerate(_taken(reference)):
        firsts.setdefault(optimizer, step)
        names[optimizer].update(layout.names)
    stepped: set[str] = set()
    for optimizer, step in firsts.items():
        begun = (
            (rank, trace.initial(trace.lines[steps[step]]["optimizer"]))
            for rank, (trace, steps) in enumerate(zip(ranks, matched, strict=True))
            if step < len(steps)
        )
        own = frozenset(names[optimizer] - stepped)
        yield OptimizerStart(step, own, reference.initial(optimizer), tuple(begun))
        stepped |= own
