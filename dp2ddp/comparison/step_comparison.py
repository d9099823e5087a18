"""One step of DataParallel and of each rank, side by side: what differs, and whether rounding may have done it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.differences import (
    GRADIENTS,
    KINDS,
    TINY,
    Difference,
    agreeing,
    by_sketch,
    by_values,
    distances_between,
    largest,
    named_difference,
    scaled,
    unclipped_differences,
)
from dp2ddp.comparison.matching import in_order_of
from dp2ddp.comparison.noise import Noise
from dp2ddp.comparison.tolerance import FACTOR, Tolerance
from dp2ddp.trace.digests import Floats
from dp2ddp.trace.records import Step, Vector


@dataclass
class StepFindings:
    """What is collected while the steps go by, up to the first with a difference that is not allowed."""

    tolerance: Tolerance
    natural: Noise
    port: bool  # made by hand: what a rank computes on the way is its own
    largest: Difference | None = None
    worst: Difference | None = None
    bad: list[Difference] = field(default_factory=list)  # at the first step that has any
    evidence: list[Difference] = field(default_factory=list)  # of the step: differs, and may
    identical_steps: int = 0
    noisy: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)  # optimizer -> elements
    noise: float = 0.0
    noise_floor: float = 0.0
    agreeing: tuple[tuple[int, ...], ...] = ()
    loss_scale: float = TINY  # the largest loss so far: a loss near 0 is a difference of large numbers

    def add(self, measured: Difference, room: float = 0.0, judged: bool = True) -> None:
        """Judge a difference; `room` is allowed on top for what follows a gradient of pure rounding.

        Where it is not `judged` it is kept as evidence for the diagnosis, and does not count.
        """
        difference = self._beside_noise(measured, room)
        allowed = difference.size <= difference.allowed  # nan is not
        if judged and (self.largest is None or difference.size > self.largest.size):
            self.largest = difference
        counts = judged and (not allowed or difference.size > room or not difference.size)
        if counts and (self.worst is None or difference.noise_ratio > self.worst.noise_ratio):
            self.worst = difference
        if not allowed:
            (self.bad if judged else self.evidence).append(difference)

    def _beside_noise(self, difference: Difference, room: float) -> Difference:
        noise = self.natural.of(difference.kind, difference.step)
        allowed = max(self.natural.allowed(difference.kind, difference.step), room)
        return dataclasses.replace(difference, noise=noise, allowed=allowed, epsilon=self.tolerance.epsilon)

    @property
    def causes(self) -> list[Difference]:
        """The nearest to the cause first; behind them what also differs at that step, and may."""
        if not self.bad:
            return []
        first, *others = self._sorted(self.bad)
        beside = [each for each in self.evidence if each.step == first.step]
        return [first, *self._sorted([*others, *beside])]

    @staticmethod
    def _sorted(differences: list[Difference]) -> list[Difference]:
        return sorted(differences, key=lambda each: (KINDS.index(each.kind), each.rank))


def compare_step(findings: StepFindings, step: Step, ranks: tuple[Step, ...]) -> None:
    """Compare one step of DataParallel with the step of each rank that stands for it, and add to `findings`.

    From cause to effect: layout, learning rates, gradients before clipping, gradients, parameters; rank 0 by its values
    (where both sides kept them), other ranks with other hashes than rank 0 by their sketches.
    """
    findings.evidence = []
    others: list[Step] = []
    for rank, own in enumerate(ranks):
        other = in_order_of(own, step.layout)
        if other is None or (not findings.port and own.optimizer != step.optimizer):
            findings.add(Difference("layout", np.inf, step.number, rank, _layout_words(step, own)))
            return
        others.append(other)
        _compare_numbers(findings, step, other, rank)
    if findings.port:
        for difference in _stream_differences(step.number, ranks):
            findings.add(difference)
    for difference in _before_clipping(step, others):
        findings.add(difference)
    if findings.port and not step.layout.names:  # no parameter has a gradient: the losses are all there is
        for difference in _mean_loss_differences(findings, step, others):
            findings.add(difference)
    identical = True
    for kind in ("gradient", "parameter"):
        if kind == "gradient" and findings.port and _is_put_together(findings, step, others):
            identical = False
            continue
        vectors = [_vector(each, kind) for each in (step, *others)]
        identical &= all(np.array_equal(vectors[0].hashes, each.hashes) for each in vectors[1:])
        for rank, vector in enumerate(vectors[1:]):
            if rank == 0 or not np.array_equal(vector.hashes, vectors[1].hashes):
                findings.add(_tensors(findings, kind, step, others[rank], rank))
        if findings.bad:
            findings.agreeing = findings.agreeing or agreeing(vectors[1:])
    _compare_beside(findings, step, others[0])
    findings.identical_steps += identical and not findings.bad


def _vector(step: Step, kind: str) -> Vector:
    return step.gradients if kind == "gradient" else step.parameters


def _layout_words(step: Step, other: Step) -> str:
    if in_order_of(other, step.layout) is not None:
        return f"optimizer {other.optimizer} steps where optimizer {step.optimizer} did"
    return f"optimizer {step.optimizer} has {len(other.layout.shapes)} parameters instead of {len(step.layout.shapes)}"


# ---- numbers of the script


def _compare_numbers(findings: StepFindings, step: Step, other: Step, rank: int) -> None:
    expected, actual = step.learning_rates, other.learning_rates
    if findings.port and (len(expected) != len(actual) or step.layout.names != other.layout.names):
        expected, actual = (
            tuple(sorted(set(rates))) for rates in (expected, actual)
        )  # the groups are its own
    for difference in number_differences("learning rate", expected, actual, step.number, rank, TINY):
        findings.add(difference)
    findings.loss_scale = max(
        [findings.loss_scale, *(abs(loss) for loss in step.losses if np.isfinite(loss))]
    )
    for difference in number_differences(
        "loss", step.losses, other.losses, step.number, rank, findings.loss_scale
    ):
        findings.add(difference, judged=not findings.port)
    if findings.port:
        for difference in _decision_differences(step, other, rank):
            findings.add(difference)


def _decision_differences(step: Step, other: Step, rank: int) -> Iterator[Difference]:
    """Facts that numbers in double precision do not show."""
    if step.skipped != other.skipped:
        words = f"{other.skipped} steps skipped by the scaler instead of {step.skipped}"
        yield Difference("decision", np.inf, step.number, rank, words)
    expected, actual = (" and ".join(sorted(set(each.precision))) or "none" for each in (step, other))
    if expected != actual:
        words = f"autocast to {actual} instead of {expected}"
        yield Difference("precision", np.inf, step.number, rank, words)


def _stream_differences(number: int, ranks: Sequence[Step]) -> Iterator[Difference]:
    """Different samples that two ranks loaded with the same random numbers: half of an augmentation is lost.

    The verifier gives each sample of a port a stream of its own (runtime/sample_streams.py), so gradients
    do not show it.
    """
    drawn: dict[
        int, tuple[int, set[tuple[int, ...] | None]]
    ] = {}  # stream -> the first rank, and its samples
    for rank, step in enumerate(ranks):
        for draw in step.draws:
            for stream in draw.streams if draw.indices is not None else ():
                first, samples = drawn.setdefault(stream, (rank, set()))
                if first == rank:  # several batches: what samples draw leaves the script's own streams alone
                    samples.add(draw.indices)
                elif draw.indices not in samples:
                    words = f"the same as on rank {first}, for other samples"
                    yield Difference("random streams", np.inf, number, rank, words)
                    return


def number_differences(
    kind: str, expected: tuple[float, ...], actual: tuple[float, ...], step: int, rank: int, scale: float
) -> Iterator[Difference]:
    """The differences between two tuples of numbers, one each; a single one of size inf if their lengths differ.

    Relative to the expected number, or to `scale` where that is larger.
    """
    if len(expected) != len(actual):
        yield Difference(kind, np.inf, step, rank, f"({len(actual)} of them instead of {len(expected)})")
        return
    for a, b in zip(expected, actual, strict=True):
        same = a == b or (np.isnan(a) and np.isnan(b))
        size = 0.0 if same else abs(a - b) / max(abs(a), scale)
        yield Difference(kind, size, step, rank, "", abs(a), abs(b))


def _mean_loss_differences(findings: StepFindings, step: Step, ranks: Sequence[Step]) -> Iterator[Difference]:
    """Losses of a port's ranks are their own: each is DataParallel's, or their mean or sum is."""
    scale, allowed = findings.loss_scale, FACTOR * findings.tolerance.epsilon
    whole, parts = sum(step.losses), [sum(rank.losses) for rank in ranks]
    rows = [sum(map(sum, rank.rows)) for rank in ranks]
    share = np.array(rows if all(rows) else [1.0] * len(parts))
    mean = float(np.mean(parts))
    size = max(abs(whole), scale) if np.isfinite(whole) else scale  # an inf is near to no other number
    for together in (mean, float(share @ parts / share.sum()), float(sum(parts))):
        both_nan = np.isnan(whole) and np.isnan(mean)
        if together == whole or abs(together - whole) <= allowed * size or both_nan:
            return
    yield from number_differences("loss", (whole,), (mean,), step.number, 0, scale)


def _is_put_together(findings: StepFindings, step: Step, ranks: Sequence[Step]) -> bool:
    """Whether results of autograd.grad, which nothing synchronises, make DataParallel's as a mean or a sum."""
    if step.source != "grad":
        return False
    expected, *actual = (each.gradients.sketched(step.layout)[:, 1:] for each in (step, *ranks))
    allowed = FACTOR * findings.tolerance.epsilon * largest(expected)
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is nan, and nan is not allowed
        joined = np.mean(actual, axis=0), np.sum(actual, axis=0)
        return any(np.abs(each - expected).max(initial=0.0) <= allowed for each in joined)


# ---- gradients and parameters


def _tensors(findings: StepFindings, kind: str, step: Step, other: Step, rank: int) -> Difference:
    """The largest difference among the tensors of a step."""
    missing = _first_missing(step, other, kind, rank)
    if missing:
        return missing
    a, b = _vector(step, kind), _vector(other, kind)
    if a.values is not None and b.values is not None:
        differences = _by_values(findings, kind, step, a.values, b.values)
    else:
        differences = by_sketch(kind, step.layout, a, b)
    return _largest_of(kind, step, a, b, differences, rank)


def _largest_of(
    kind: str, step: Step, a: Vector, b: Vector, differences: Sequence[float], rank: int
) -> Difference:
    if not differences:
        return Difference(kind, 0.0, step.number, rank)
    worst = int(np.argmax(np.nan_to_num(differences, nan=np.inf)))
    norms = (float(vector.sketched(step.layout)[worst][0]) for vector in (a, b))
    return Difference(kind, float(differences[worst]), step.number, rank, step.layout.names[worst], *norms)


def _before_clipping(step: Step, others: Sequence[Step]) -> Iterator[Difference]:
    """What clipping hides: a gradient that is W times too large is DataParallel's once both have the norm 1.

    A rank that clips the sum of the ranks to W times the norm, and divides later, does the same as DataParallel:
    gradients may be apart by as much as the limits are.
    """
    kind, a, first = GRADIENTS[0], step.unclipped, others[0].unclipped
    for rank, other in enumerate(others):
        b = other.unclipped
        if a is None or b is None or (rank and first is not None and np.array_equal(b.hashes, first.hashes)):
            continue
        sizes = unclipped_differences(step.layout, a, b)
        if (factor := _limits_apart(step, other)) != 1.0:
            in_measure = unclipped_differences(step.layout, a, scaled(b, factor))
            sizes = min(sizes, in_measure, key=lambda each: max(each, default=0.0))
        yield _largest_of(kind, step, a, b, sizes, rank)


def _limits_apart(step: Step, other: Step) -> float:
    """How often as large the limits of clipping are as on the other side; 1 if there is no such number."""
    expected, actual = (sorted(set(each.limits)) for each in (step, other))
    factors = {a / b for a, b in zip(expected, actual, strict=False) if b}
    return factors.pop() if len(expected) == len(actual) and len(factors) == 1 else 1.0


def _first_missing(step: Step, other: Step, kind: str, rank: int) -> Difference | None:
    """None and zeros are different gradients: weight decay moves zeros (docs/semantics.md#unused-parameters)."""
    a, b = _vector(step, kind).hashes == 0, _vector(other, kind).hashes == 0
    for index in np.flatnonzero(a != b):
        what = "there is none under DataParallel" if a[index] else "there is none"
        return Difference(kind, np.inf, step.number, rank, f"{step.layout.names[index]} ({what})")
    return None


def _by_values(findings: StepFindings, kind: str, step: Step, a: Floats, b: Floats) -> list[float]:
    distances = distances_between(a, b)
    if kind == "gradient":
        scale = largest(a)
        sizes = np.maximum(np.abs(a), np.abs(b))
        noisy = (sizes <= findings.tolerance.noise * scale) & (distances > 0)
        findings.noise_floor = max(findings.noise_floor, float(sizes[noisy].max(initial=0.0)))
        before = findings.noisy.get(step.optimizer, noisy)[: len(a)]
        noisy[: len(before)] |= (
            before  # add_param_group: an optimizer gets more parameters, behind the others
        )
        findings.noisy[step.optimizer] = noisy
        return by_values(step.layout, distances, a, scale)
    noisy = findings.noisy.get(step.optimizer, np.zeros(0, dtype=bool))
    if len(noisy) == len(a):
        apart_by_noise = by_values(step.layout, np.where(noisy, distances, 0.0), a, None)
        findings.noise = max([findings.noise, *apart_by_noise])
        findings.noise_floor = max(findings.noise_floor, float(distances[noisy].max(initial=0.0)))
        distances[noisy] = 0.0
    return by_values(step.layout, distances, a, None)


# ---- optimizer state and buffers


def _compare_beside(findings: StepFindings, step: Step, rank0: Step) -> None:
    """What parameters do not show yet. On rank 0: replica 0's buffers are the ones that survive under DataParallel."""
    for kind, expected, actual in (
        ("optimizer state", step.state, rank0.state),
        ("buffer", step.buffers, rank0.buffers),
    ):
        if expected is None or actual is None:
            continue
        name, size = named_difference(expected, actual, together=kind == "optimizer state")
        findings.add(
            Difference(kind, size, step.number, 0, name), room=findings.tolerance.room_behind(findings.noise)
        )


def initial_differences(
    expected: Vector, ranks: Sequence[Vector], parameters: frozenset[str]
) -> Iterator[Difference]:
    """The largest difference on each rank in the parameters before the first step."""
    for rank, actual in enumerate(ranks):
        name, size = named_difference(expected, actual, together=False, only=parameters)
        if size:
            yield Difference("initial state", size, 0, rank, name)
