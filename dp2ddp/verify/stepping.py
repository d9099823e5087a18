"""One step of DataParallel and of each rank, side by side: what differs, and whether rounding may have done it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dp2ddp.trace.digests import Floats
from dp2ddp.trace.records import Step, Vector
from dp2ddp.verify.differences import (
    GRADIENTS,
    KINDS,
    TINY,
    Difference,
    agreeing,
    apart,
    by_sketch,
    by_values,
    largest,
    of_named,
    scaled,
    unclipped_apart,
)
from dp2ddp.verify.matching import in_order_of
from dp2ddp.verify.noise import Noise
from dp2ddp.verify.tolerance import FACTOR, Tolerance


@dataclass
class Found:
    """What is collected while the steps go by."""

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

    def add(self, found: Difference, room: float = 0.0, judged: bool = True) -> None:
        """`room` is for what follows a gradient of pure rounding."""
        difference = self._beside_noise(found, room)
        allowed = difference.size <= difference.allowed  # nan is not
        if judged and (self.largest is None or difference.size > self.largest.size):
            self.largest = difference
        counts = judged and (not allowed or difference.size > room or not difference.size)
        if counts and (self.worst is None or difference.noise_ratio > self.worst.noise_ratio):
            self.worst = difference
        if not allowed:
            (self.bad if judged else self.evidence).append(difference)

    def _beside_noise(self, found: Difference, room: float) -> Difference:
        noise = self.natural.of(found.kind, found.step)
        allowed = max(self.natural.allowed(found.kind, found.step), room)
        return dataclasses.replace(found, noise=noise, allowed=allowed, epsilon=self.tolerance.epsilon)

    @property
    def causes(self) -> list[Difference]:
        """The nearest to the cause first; behind them what also differs at that step, and may."""
        if not self.bad:
            return []
        first, *others = self._sorted(self.bad)
        beside = [each for each in self.evidence if each.step == first.step]
        return [first, *self._sorted([*others, *beside])]

    @staticmethod
    def _sorted(found: list[Difference]) -> list[Difference]:
        return sorted(found, key=lambda each: (KINDS.index(each.kind), each.rank))


def compare_step(found: Found, step: Step, ranks: tuple[Step, ...]) -> None:
    """Until the first step with a difference that is not allowed."""
    found.evidence = []
    others: list[Step] = []
    for rank, own in enumerate(ranks):
        other = in_order_of(own, step.layout)
        if other is None or (not found.port and own.optimizer != step.optimizer):
            found.add(Difference("layout", np.inf, step.number, rank, _layout_words(step, own)))
            return
        others.append(other)
        _compare_numbers(found, step, other, rank)
    if found.port:
        for difference in _of_streams(step.number, ranks):
            found.add(difference)
    for difference in _before_clipping(step, others):
        found.add(difference)
    if found.port and not step.layout.names:  # no parameter has a gradient: the losses are all there is
        for difference in _of_losses_together(found, step, others):
            found.add(difference)
    identical = True
    for kind in ("gradient", "parameter"):
        if kind == "gradient" and found.port and _is_put_together(found, step, others):
            identical = False
            continue
        vectors = [_vector(each, kind) for each in (step, *others)]
        identical &= all(np.array_equal(vectors[0].hashes, each.hashes) for each in vectors[1:])
        for rank, vector in enumerate(vectors[1:]):
            if rank == 0 or not np.array_equal(vector.hashes, vectors[1].hashes):
                found.add(_tensors(found, kind, step, others[rank], rank))
        if found.bad:
            found.agreeing = found.agreeing or agreeing(vectors[1:])
    _compare_beside(found, step, others[0])
    found.identical_steps += identical and not found.bad


def _vector(step: Step, kind: str) -> Vector:
    return step.gradients if kind == "gradient" else step.parameters


def _layout_words(step: Step, other: Step) -> str:
    if in_order_of(other, step.layout) is not None:
        return f"optimizer {other.optimizer} steps where optimizer {step.optimizer} did"
    return f"optimizer {step.optimizer} has {len(other.layout.shapes)} parameters instead of {len(step.layout.shapes)}"


# ---- numbers of the script


def _compare_numbers(found: Found, step: Step, other: Step, rank: int) -> None:
    ours, theirs = step.learning_rates, other.learning_rates
    if found.port and (len(ours) != len(theirs) or step.layout.names != other.layout.names):
        ours, theirs = (tuple(sorted(set(rates))) for rates in (ours, theirs))  # the groups are its own
    for difference in of_numbers("learning rate", ours, theirs, step.number, rank, TINY):
        found.add(difference)
    found.loss_scale = max([found.loss_scale, *(abs(loss) for loss in step.losses if np.isfinite(loss))])
    for difference in of_numbers("loss", step.losses, other.losses, step.number, rank, found.loss_scale):
        found.add(difference, judged=not found.port)
    if found.port:
        for difference in _of_decisions(step, other, rank):
            found.add(difference)


def _of_decisions(step: Step, other: Step, rank: int) -> Iterator[Difference]:
    """Facts that numbers in double precision do not show."""
    if step.skipped != other.skipped:
        words = f"{other.skipped} steps skipped by the scaler instead of {step.skipped}"
        yield Difference("decision", np.inf, step.number, rank, words)
    ours, theirs = (" and ".join(sorted(set(each.precision))) or "none" for each in (step, other))
    if ours != theirs:
        words = f"autocast to {theirs} instead of {ours}"
        yield Difference("precision", np.inf, step.number, rank, words)


def _of_streams(number: int, ranks: Sequence[Step]) -> Iterator[Difference]:
    """Different samples that two ranks loaded with the same random numbers: half of an augmentation is lost.

    The verifier gives each sample of a port a stream of its own (runtime/samples.py), so gradients do not show it.
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


def of_numbers(
    kind: str, ours: tuple[float, ...], theirs: tuple[float, ...], step: int, rank: int, scale: float
) -> Iterator[Difference]:
    if len(ours) != len(theirs):
        yield Difference(kind, np.inf, step, rank, f"({len(theirs)} of them instead of {len(ours)})")
        return
    for a, b in zip(ours, theirs, strict=True):
        same = a == b or (np.isnan(a) and np.isnan(b))
        size = 0.0 if same else abs(a - b) / max(abs(a), scale)
        yield Difference(kind, size, step, rank, "", abs(a), abs(b))


def _of_losses_together(found: Found, step: Step, ranks: Sequence[Step]) -> Iterator[Difference]:
    """Losses of a port's ranks are their own: each is DataParallel's, or their mean or sum is."""
    scale, allowed = found.loss_scale, FACTOR * found.tolerance.epsilon
    whole, parts = sum(step.losses), [sum(rank.losses) for rank in ranks]
    rows = [sum(map(sum, rank.rows)) for rank in ranks]
    share = np.array(rows if all(rows) else [1.0] * len(parts))
    mean = float(np.mean(parts))
    for together in (mean, float(share @ parts / share.sum()), float(sum(parts))):
        if abs(together - whole) <= allowed * max(abs(whole), scale) or (np.isnan(whole) and np.isnan(mean)):
            return
    yield from of_numbers("loss", (whole,), (mean,), step.number, 0, scale)


def _is_put_together(found: Found, step: Step, ranks: Sequence[Step]) -> bool:
    """Whether results of autograd.grad, which nothing synchronises, make DataParallel's as a mean or a sum."""
    if step.source != "grad":
        return False
    ours, *theirs = (each.gradients.sketched(step.layout)[:, 1:] for each in (step, *ranks))
    allowed = FACTOR * found.tolerance.epsilon * np.abs(ours).max(initial=0.0)
    joined = np.mean(theirs, axis=0), np.sum(theirs, axis=0)
    return any(np.abs(each - ours).max(initial=0.0) <= allowed for each in joined)


# ---- gradients and parameters


def _tensors(found: Found, kind: str, step: Step, other: Step, rank: int) -> Difference:
    """The largest difference among the tensors of a step."""
    missing = _first_missing(step, other, kind, rank)
    if missing:
        return missing
    a, b = _vector(step, kind), _vector(other, kind)
    if a.values is not None and b.values is not None:
        differences = _by_values(found, kind, step, a.values, b.values)
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
        sizes = unclipped_apart(step.layout, a, b)
        if (factor := _limits_apart(step, other)) != 1.0:
            in_measure = unclipped_apart(step.layout, a, scaled(b, factor))
            sizes = min(sizes, in_measure, key=lambda each: max(each, default=0.0))
        yield _largest_of(kind, step, a, b, sizes, rank)


def _limits_apart(step: Step, other: Step) -> float:
    """How often as large the limits of clipping are as on the other side; 1 if there is no such number."""
    ours, theirs = (sorted(set(each.limits)) for each in (step, other))
    factors = {a / b for a, b in zip(ours, theirs, strict=False) if b}
    return factors.pop() if len(ours) == len(theirs) and len(factors) == 1 else 1.0


def _first_missing(step: Step, other: Step, kind: str, rank: int) -> Difference | None:
    """None and zeros are different gradients: weight decay moves zeros (docs/semantics.md#unused-parameters)."""
    a, b = _vector(step, kind).hashes == 0, _vector(other, kind).hashes == 0
    for index in np.flatnonzero(a != b):
        what = "there is none under DataParallel" if a[index] else "there is none"
        return Difference(kind, np.inf, step.number, rank, f"{step.layout.names[index]} ({what})")
    return None


def _by_values(found: Found, kind: str, step: Step, a: Floats, b: Floats) -> list[float]:
    away = apart(a, b)
    if kind == "gradient":
        scale = largest(a)
        sizes = np.maximum(np.abs(a), np.abs(b))
        noisy = (sizes <= found.tolerance.noise * scale) & (away > 0)
        found.noise_floor = max(found.noise_floor, float(sizes[noisy].max(initial=0.0)))
        before = found.noisy.get(step.optimizer, noisy)[: len(a)]
        noisy[: len(before)] |= (
            before  # add_param_group: an optimizer gets more parameters, behind the others
        )
        found.noisy[step.optimizer] = noisy
        return by_values(step.layout, away, a, scale)
    noisy = found.noisy.get(step.optimizer, np.zeros(0, dtype=bool))
    if len(noisy) == len(a):
        apart_by_noise = by_values(step.layout, np.where(noisy, away, 0.0), a, None)
        found.noise = max([found.noise, *apart_by_noise])
        found.noise_floor = max(found.noise_floor, float(away[noisy].max(initial=0.0)))
        away[noisy] = 0.0
    return by_values(step.layout, away, a, None)


# ---- optimizer state and buffers


def _compare_beside(found: Found, step: Step, rank0: Step) -> None:
    """What parameters do not show yet. On rank 0: replica 0's buffers are the ones that survive under DataParallel."""
    for kind, ours, theirs in (
        ("optimizer state", step.state, rank0.state),
        ("buffer", step.buffers, rank0.buffers),
    ):
        if ours is None or theirs is None:
            continue
        name, size = of_named(ours, theirs, together=kind == "optimizer state")
        found.add(Difference(kind, size, step.number, 0, name), room=found.tolerance.room_behind(found.noise))


def initial_differences(
    ours: Vector, ranks: Sequence[Vector], wanted: frozenset[str]
) -> Iterator[Difference]:
    """Of the parameters before the first step: the largest difference on each rank."""
    for rank, theirs in enumerate(ranks):
        name, size = of_named(ours, theirs, together=False, wanted=wanted)
        if size:
            yield Difference("initial state", size, 0, rank, name)
