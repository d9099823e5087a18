"""What the charts of a report draw: one row of figures for each optimizer step. (traces) -> Series; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.differences import TINY, Doubles, distances_between, distances_by_sketch, largest
from dp2ddp.comparison.matching import Matching, in_order_of, matched_steps
from dp2ddp.trace.digests import Floats
from dp2ddp.trace.records import Step, Trace, Vector

Noisy = Mapping[int, npt.NDArray[np.bool_]]  # optimizer -> elements whose gradient is nothing but rounding


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
    learning_rates: (
        Doubles  # (steps, 2, groups): DataParallel, rank 0; nan where an optimizer has fewer groups
    )


def series_of(
    reference: Trace, ranks: Sequence[Trace], noisy: Noisy, matchings: Sequence[Matching] = ()
) -> Series:
    """Over all steps that DataParallel and every rank took, also those behind the first difference.

    `matchings` say which steps of each rank these are, if not all in order. Parameters that follow a gradient
    of pure rounding are left out, as in the judgement (tolerance.py).
    """
    names = tuple(dict.fromkeys(name for layout in reference.layouts for name in layout.names))
    columns = {name: column for column, name in enumerate(names)}
    taken = [each.steps for each in matchings] or [tuple(range(len(rank))) for rank in ranks]
    count = min(len(reference), *map(len, taken))
    groups = max(
        (len(line["learning_rates"]) for each in (reference, *ranks[:1]) for line in each.lines), default=0
    )
    series = _empty(names, count, len(ranks), groups)
    expected = (matched_steps(rank, steps[:count]) for rank, steps in zip(ranks, taken, strict=True))
    for index, (step, *own) in enumerate(zip(reference.steps(), *expected, strict=False)):
        others = [in_order_of(each, step.layout) or each for each in own]
        series.steps[index] = step.number
        series.losses[index] = [_mean(each.losses) for each in (step, *others)]
        for side, each in enumerate((step, others[0])):
            series.learning_rates[index, side, : len(each.learning_rates)] = each.learning_rates
        series.rows[index] = _rows(step, others)
        places = [columns[name] for name in step.layout.names]
        series.gradients[index, places] = _relative_differences(step, others, "gradients", None)
        series.parameters[index, places] = _relative_differences(
            step, others, "parameters", noisy.get(step.optimizer)
        )
    return series


def _empty(names: tuple[str, ...], count: int, world: int, groups: int) -> Series:
    return Series(
        names=names,
        steps=np.zeros(count, dtype=np.int64),
        gradients=np.full((count, len(names)), np.nan),
        parameters=np.full((count, len(names)), np.nan),
        noise=None,
        losses=np.full((count, 1 + world), np.nan),
        rows=np.zeros((count, world), dtype=np.int64),
        learning_rates=np.full((count, 2, groups), np.nan),
    )


def _mean(losses: tuple[float, ...]) -> float:
    """The mean loss of a step with several backward passes; nan without any."""
    return sum(losses) / len(losses) if losses else float("nan")


def _rows(step: Step, others: Sequence[Step]) -> list[int]:
    """What each rank trained on; what DataParallel gave the device, where ranks do not tell."""
    own = [sum(map(sum, _trained_on(other))) for other in others]
    if any(own):
        return own
    return [sum(rows[rank] for rows in _trained_on(step) if rank < len(rows)) for rank in range(len(others))]


def _trained_on(step: Step) -> list[tuple[int, ...]]:
    """The rows of each forward that is trained on; evaluation between two steps does not count, unless the script
    trains in
    evaluation mode."""
    training = [forward.rows for forward in step.forwards if forward.training]
    return training or list(step.rows)


def _relative_differences(step: Step, others: Sequence[Step], kind: str, left_out: Any) -> Doubles | float:
    """The largest relative difference over the ranks, for each tensor: (tensors,)."""
    if any(other.layout.shapes != step.layout.shapes for other in others):
        return float("nan")
    expected: Vector = getattr(step, kind)
    differences: dict[bytes, Doubles] = {}
    for other in others:
        actual: Vector = getattr(other, kind)
        key = actual.hashes.tobytes()  # ranks with the same hashes are the same to the bit
        if key not in differences:
            differences[key] = _rank_differences(step, expected, actual, kind, left_out)
    worst: Doubles = np.max(list(differences.values()), axis=0)
    return worst


def _rank_differences(step: Step, expected: Vector, actual: Vector, kind: str, left_out: Any) -> Doubles:
    """0 where the bits are the same, inf where one side has none or no number."""
    sizes = np.zeros(len(expected.hashes))
    different = np.flatnonzero(expected.hashes != actual.hashes)
    if not different.size:
        return sizes
    if expected.values is not None and actual.values is not None:
        scales, distances = _by_value(step, expected.values, actual.values, different, left_out)
    else:
        scales, distances = _by_sketch(step, expected, actual)
    scale = np.maximum(scales.max(initial=0.0) if kind == "gradients" else scales, TINY)
    sizes[different] = (distances / scale)[different]
    sizes[(expected.hashes == 0) != (actual.hashes == 0)] = np.inf
    return np.where(np.isnan(sizes), np.inf, sizes)


def _by_value(step: Step, a: Floats, b: Floats, different: Any, left_out: Any) -> tuple[Doubles, Doubles]:
    """(largest value, largest difference) of each tensor."""
    places = step.layout.slices
    distances = np.zeros(len(places))
    for index in different:
        place = places[index]
        apart_here = distances_between(a[place], b[place])
        if left_out is not None and len(left_out) == len(a):
            apart_here[left_out[place]] = 0.0
        distances[index] = apart_here.max(initial=0.0)
    return np.array([largest(a[place]) for place in places]), distances


def _by_sketch(step: Step, expected: Vector, actual: Vector) -> tuple[Doubles, Doubles]:
    """(norm, estimated norm of the difference) of each tensor."""
    a, b = expected.sketched(step.layout), actual.sketched(step.layout)
    return a[:, 0], distances_by_sketch(a, b)
