"""Did both train the same? (reference trace, a trace of each rank, tolerance) -> Comparison; pure.

Gradients come before parameters: the step whose gradients part is the step to look at, parameters part after it.
Rank 0 is compared number by number. Another rank with the same hashes is the same to the bit; one with other hashes is
compared by its sketch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dp2ddp.trace.digests import Floats
from dp2ddp.trace.records import Step, Trace, Vector
from dp2ddp.verify.differences import (
    KINDS,
    TINY,
    Difference,
    agreeing,
    apart,
    by_sketch,
    by_values,
    largest,
    of_arrays,
)
from dp2ddp.verify.noise import Noise, noise_between, noisy_elements, without_run
from dp2ddp.verify.series import Series, series_of
from dp2ddp.verify.tolerance import FACTOR, HIDING, Tolerance

__all__ = ["KINDS", "Comparison", "Difference", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What was found, for one number of devices and one precision."""

    steps: int  # of the reference
    rank_steps: tuple[int, ...]
    largest: Difference | None  # over gradients and parameters of all steps and ranks that were compared
    first: Difference | None  # at the first step with one that is not allowed: the one nearest to the cause
    also: tuple[Difference, ...]  # what else differs at that step
    identical_steps: int  # steps with the same bits in every gradient and parameter, on every rank
    identical_buffers: bool
    noisy: int = 0  # elements whose gradient is nothing but rounding
    noise: float = 0.0  # how far apart such parameters came
    noise_floor: float = 0.0  # the largest such gradient or difference, as it is
    agreeing_ranks: tuple[tuple[int, ...], ...] = ()  # at the first difference: ranks with the same bits
    rows: tuple[tuple[int, ...], ...] = ()  # of each wrapped forward under DataParallel
    remarks: tuple[str, ...] = ()
    series: Series | None = field(default=None, compare=False)  # what charts draw; arrays have no plain ==
    worst: Difference | None = None  # the largest one in terms of natural noise
    natural: Noise | None = field(default=None, compare=False)  # measured; None where nothing asked for it

    @property
    def noise_ratio(self) -> float | None:
        """Difference / natural noise, where it is largest; None if no second DataParallel run was needed."""
        return self.worst.noise_ratio if self.worst and self.natural else None

    @property
    def hides_from(self) -> int | None:
        """The first step at which a fault could hide in natural noise."""
        if self.natural is None:
            return None
        blurred = np.flatnonzero(FACTOR * self.natural.gradients > HIDING)
        return int(blurred[0]) if blurred.size else None

    @property
    def same(self) -> bool:
        return self.first is None

    @property
    def identical(self) -> bool:
        return self.same and self.identical_steps == self.steps and self.identical_buffers


@dataclass
class _Found:
    """What is collected while the steps go by."""

    tolerance: Tolerance
    natural: Noise
    largest: Difference | None = None
    worst: Difference | None = None
    bad: list[Difference] = field(default_factory=list)  # at the first step that has any
    identical_steps: int = 0
    noisy: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)  # optimizer -> elements
    noise: float = 0.0
    noise_floor: float = 0.0
    agreeing: tuple[tuple[int, ...], ...] = ()
    own_losses: bool = False  # a rank's loss is that of its own rows: it explains, and is not judged
    loss_scale: float = TINY  # the largest loss so far: a loss near 0 is a difference of large numbers

    def add(self, found: Difference, room: float = 0.0) -> None:
        """`room` is for what follows a gradient of pure rounding."""
        difference = self._beside_noise(found, room)
        if self.largest is None or difference.size > self.largest.size:
            self.largest = difference
        if self.worst is None or difference.noise_ratio > self.worst.noise_ratio:
            self.worst = difference
        if not difference.size <= difference.allowed:  # nan is not allowed either
            self.bad.append(difference)

    def _beside_noise(self, found: Difference, room: float) -> Difference:
        noise = self.natural.of(found.kind, found.step)
        allowed = max(self.natural.allowed(found.kind, found.step), room)
        return dataclasses.replace(found, noise=noise, allowed=allowed, epsilon=self.tolerance.epsilon)


def compare(
    reference: Trace,
    ranks: Sequence[Trace],
    tolerance: Tolerance,
    nudged: Trace | None = None,
    own_losses: bool = False,
) -> Comparison:
    """Compare every step of every rank with the reference; `nudged` is DataParallel, an ulp away (tolerance.py).

    `own_losses`: those of a port's ranks are not judged.
    """
    natural = None
    if nudged is not None:
        natural = noise_between(reference, nudged, noisy_elements(reference, ranks[0], tolerance), tolerance)
    found = _Found(tolerance, natural or without_run(tolerance), own_losses=own_losses)
    for step, others in zip(reference.steps(), _together(ranks), strict=False):
        _compare_step(found, step, others)
        if found.bad:
            break
    counts = tuple(len(trace) for trace in ranks)
    _compare_counts(found, len(reference), counts)
    buffers = _compare_buffers(found, reference, ranks[0])
    causes = sorted(found.bad, key=lambda difference: (KINDS.index(difference.kind), difference.rank))
    return Comparison(
        steps=len(reference),
        rank_steps=counts,
        largest=found.largest,
        first=causes[0] if causes else None,
        also=tuple(causes[1:]),
        identical_steps=found.identical_steps,
        identical_buffers=buffers,
        noisy=sum(int(mask.sum()) for mask in found.noisy.values()),
        noise=found.noise,
        noise_floor=found.noise_floor,
        agreeing_ranks=found.agreeing,
        rows=reference.rows(),
        remarks=_remarks(reference, ranks),
        series=_series(reference, ranks, found, natural),
        worst=found.worst,
        natural=natural,
    )


def _series(reference: Trace, ranks: Sequence[Trace], found: _Found, natural: Noise | None) -> Series:
    series = series_of(reference, ranks, found.noisy)
    if natural is None:
        return series
    noise = natural.each_step
    missing = max(len(series.steps) - len(noise), 0)
    noise = np.concatenate([noise, np.full(missing, noise[-1] if len(noise) else np.nan)])
    return dataclasses.replace(series, noise=noise[: len(series.steps)])


def _together(ranks: Sequence[Trace]) -> Iterator[tuple[Step, ...]]:
    return zip(*(trace.steps() for trace in ranks), strict=False)


def _compare_step(found: _Found, step: Step, others: tuple[Step, ...]) -> None:
    identical, losses = True, list[Difference]()
    for rank, other in enumerate(others):
        if not _same_layout(step, other):
            found.add(Difference("layout", np.inf, step.number, rank, _layout_words(step, other)))
            return
        for difference in _scalars(found, step, other, rank):
            if found.own_losses and difference.kind == "loss":
                losses.append(difference)
            else:
                found.add(difference)
    for kind in ("gradient", "parameter"):
        vectors = [_vector(each, kind) for each in (step, *others)]
        identical &= all(np.array_equal(vectors[0].hashes, each.hashes) for each in vectors[1:])
        for rank, other in enumerate(others):
            if rank == 0 or not np.array_equal(_vector(other, kind).hashes, _vector(others[0], kind).hashes):
                found.add(_tensors(found, kind, step, other, rank))
        if found.bad:
            found.agreeing = found.agreeing or agreeing(vectors[1:])
    if found.bad:
        found.bad += [loss for loss in losses if not loss.size <= found.tolerance.allowed]
    found.identical_steps += identical and not found.bad


def _vector(step: Step, kind: str) -> Vector:
    return step.gradients if kind == "gradient" else step.parameters


def _same_layout(step: Step, other: Step) -> bool:
    # names may differ (a wrapper within a wrapper); the order is the optimizer's own
    return step.optimizer == other.optimizer and step.layout.shapes == other.layout.shapes


def _layout_words(step: Step, other: Step) -> str:
    if step.optimizer != other.optimizer:
        return f"optimizer {other.optimizer} steps where optimizer {step.optimizer} did"
    return f"optimizer {step.optimizer} has {len(other.layout.shapes)} parameters instead of {len(step.layout.shapes)}"


def _scalars(found: _Found, step: Step, other: Step, rank: int) -> Iterator[Difference]:
    found.loss_scale = max([found.loss_scale, *(abs(loss) for loss in step.losses if np.isfinite(loss))])
    yield from _numbers("learning rate", step.learning_rates, other.learning_rates, step.number, rank, TINY)
    yield from _numbers("loss", step.losses, other.losses, step.number, rank, found.loss_scale)


def _numbers(
    kind: str, ours: tuple[float, ...], theirs: tuple[float, ...], step: int, rank: int, scale: float
) -> Iterator[Difference]:
    if len(ours) != len(theirs):
        yield Difference(kind, np.inf, step, rank, f"{len(theirs)} instead of {len(ours)}")
        return
    for a, b in zip(ours, theirs, strict=True):
        same = a == b or (np.isnan(a) and np.isnan(b))
        size = 0.0 if same else abs(a - b) / max(abs(a), scale)
        yield Difference(kind, size, step, rank, "", abs(a), abs(b))


def _tensors(found: _Found, kind: str, step: Step, other: Step, rank: int) -> Difference:
    """The largest difference among the tensors of a step."""
    missing = _first_missing(step, other, kind, rank)
    if missing:
        return missing
    a, b = _vector(step, kind), _vector(other, kind)
    if a.values is not None and b.values is not None:
        differences = _by_values(found, kind, step, a.values, b.values)
    else:
        differences = by_sketch(kind, step.layout, a, b)
    worst = int(np.argmax(np.nan_to_num(differences, nan=np.inf))) if len(differences) else 0
    norms = (
        [float(vector.sketched(step.layout)[worst][0]) for vector in (a, b)]
        if len(differences)
        else [0.0, 0.0]
    )
    size = float(differences[worst]) if len(differences) else 0.0
    return Difference(
        kind, size, step.number, rank, step.layout.names[worst] if len(differences) else "", *norms
    )


def _first_missing(step: Step, other: Step, kind: str, rank: int) -> Difference | None:
    """None and zeros are different gradients: weight decay and momentum act on zeros (SEMANTICS.md 2.3)."""
    a, b = _vector(step, kind).hashes == 0, _vector(other, kind).hashes == 0
    for index in np.flatnonzero(a != b):
        what = "there is none under DataParallel" if a[index] else "there is none"
        return Difference(kind, np.inf, step.number, rank, f"{step.layout.names[index]} ({what})")
    return None


def _by_values(found: _Found, kind: str, step: Step, a: Floats, b: Floats) -> list[float]:
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
        found.noise = max(found.noise, *by_values(step.layout, np.where(noisy, away, 0.0), a, None))
        found.noise_floor = max(found.noise_floor, float(away[noisy].max(initial=0.0)))
        away[noisy] = 0.0
    return by_values(step.layout, away, a, None)


def _compare_counts(found: _Found, steps: int, counts: tuple[int, ...]) -> None:
    for rank, count in enumerate(counts):
        if count != steps and not found.bad:
            found.bad.append(
                Difference("steps", np.inf, min(steps, count), rank, f"{count} instead of {steps}")
            )


def _compare_buffers(found: _Found, reference: Trace, rank0: Trace) -> bool:
    """On rank 0 only: replica 0's buffers are the ones that survive under DataParallel."""
    ours, theirs = reference.buffers(), rank0.buffers()
    if found.bad:
        return False  # they hold what went wrong before
    last = max(len(reference) - 1, 0)
    if ours.keys() != theirs.keys():
        name = min(ours.keys() ^ theirs.keys())
        found.add(Difference("buffer", np.inf, last, 0, f"{name} (only on one side)"))
        return False
    for name in ours:
        size = of_arrays(ours[name], theirs[name])
        # the running mean behind a noisy bias follows the bias
        room = found.tolerance.room_behind(found.noise)
        found.add(Difference("buffer", size, last, 0, name), room)
    return all(np.array_equal(ours[name], theirs[name]) for name in ours)


def _remarks(reference: Trace, ranks: Sequence[Trace]) -> tuple[str, ...]:
    traces = [("DataParallel", reference), *((f"rank {trace.rank}", trace) for trace in ranks)]
    told = [f"{who}: {remark}" for who, trace in traces if trace.end for remark in trace.end.remarks]
    missing = [
        f"{who}: the script ended without a word; its record may be short" for who, t in traces if not t.end
    ]
    return (*told, *missing)
