"""One table of two runs, filled in one pass over their records: a row for each step of DataParallel, and beside it the
step of each rank that stands for it, and that of DataParallel moved by an ulp, where it was run.

Verdict and natural noise (noise.py) and charts (series.py) ask the rows. Tensors are compared by their
values where both sides kept them, else by their sketches; ranks with the same hashes are the same to the bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.differences import (
    GRADIENTS,
    TINY,
    Difference,
    Mask,
    agreeing,
    distances_between,
    largest,
    named_difference,
    norm_of,
    relative_differences,
    scaled,
)
from dp2ddp.comparison.matching import in_order_of
from dp2ddp.comparison.script_facts import (
    decision_differences,
    mean_loss,
    mean_loss_differences,
    number_differences,
    rate_differences,
    stream_differences,
    trained_rows,
)
from dp2ddp.comparison.tolerance import FACTOR, Tolerance
from dp2ddp.trace.digests import Doubles
from dp2ddp.trace.records import Layout, Step, Vector

NAN = float("nan")
Hashes = npt.NDArray[np.uint64]
Groups = tuple[tuple[int, ...], ...]  # ranks with the same bits
# kind -> where a step has it
_VECTORS = {
    "gradient before clipping": attrgetter("unclipped"),
    "gradient": attrgetter("gradients"),
    "parameter": attrgetter("parameters"),
}


@dataclass(frozen=True)
class SoFar:
    """What has gathered from the first step to this one."""

    noisy: int = 0  # elements whose gradient is nothing but rounding
    noise: float = 0.0  # how far apart such parameters came
    noise_floor: float = 0.0  # the largest such gradient or difference, as it is
    loss_scale: float = TINY  # the largest loss: one near 0 is a difference of large numbers


@dataclass(frozen=True)
class StepRow:
    """A step of DataParallel, and how far the others are from it there. Without `rows` the ranks' runs are over."""

    step: int
    names: tuple[str, ...]  # of the parameters
    so_far: SoFar
    losses: tuple[float, ...]  # mean of its backward passes: DataParallel, then each rank; nan: there is none
    rows: tuple[int, ...]  # that each rank trained on
    learning_rates: tuple[tuple[float, ...], ...]  # DataParallel, rank 0
    worst: Mapping[str, Doubles | float]  # gradient, parameter: of all ranks; nan: cannot be compared
    facts: tuple[Difference, ...] = ()
    tensors: Mapping[str, tuple[Difference, ...]] = field(default_factory=dict)  # gradient, parameter
    groups: Groups = ()  # ranks with the same bits in all of these
    beside: tuple[Difference, ...] = ()  # what parameters do not show yet
    identical: bool = False  # the same bits in every gradient and parameter, on every rank
    natural: Mapping[str, float] | None = None  # kind -> the largest difference of the run moved by an ulp
    nudged_loss: float = NAN


@dataclass
class StepTable:
    """Fills the rows one after the other, and keeps what gathers on the way."""

    tolerance: Tolerance
    port: bool  # made by hand: what a rank computes on the way is its own
    tensors: StepTensors
    so_far: SoFar = SoFar()
    is_over: bool = False  # behind the first difference nobody can tell what is rounding
    noisy: dict[int, Mask] = field(default_factory=dict)  # number of a tensor -> elements
    noisy_by_nudge: dict[int, Mask] = field(default_factory=dict)

    def rows(
        self, reference: Iterator[Step], ranks: Iterator[tuple[Step, ...]], nudged: Iterator[Step]
    ) -> Iterator[StepRow]:
        """As long as DataParallel goes on, and the ranks or the nudged run."""
        for step, own, moved in zip(
            reference, chain(ranks, repeat(())), chain(nudged, repeat(None)), strict=False
        ):
            if not own and moved is None:
                return
            self.tensors.come_to(step)
            row = self._row(step, own)
            yield row if moved is None else self._with_noise(row, step, moved)

    def _row(self, step: Step, ranks: tuple[Step, ...]) -> StepRow:
        losses = (abs(loss) for loss in step.losses if np.isfinite(loss))
        self._gather(loss_scale=max([self.so_far.loss_scale, *losses]))
        others = [in_order_of(each, step.layout) or each for each in ranks]
        row = StepRow(
            step=step.number,
            names=step.layout.names,
            so_far=self.so_far,
            losses=tuple(mean_loss(each.losses) for each in (step, *others)),
            rows=trained_rows(step, others),
            learning_rates=tuple(each.learning_rates for each in (step, *others[:1])),
            facts=tuple(self._facts(step, ranks, others)) if ranks else (),
            worst={"gradient": NAN, "parameter": NAN},
        )
        shapes = {each.layout.shapes for each in others}
        return self._with_tensors(row, step, others) if shapes == {step.layout.shapes} else row

    def _with_tensors(self, row: StepRow, step: Step, others: Sequence[Step]) -> StepRow:
        put_together = self.port and is_put_together(step, others, self.tolerance)
        if not put_together and not self.is_over:
            self._note_noisy(step, others)
        measured = {kind: self._compare_tensors(kind, step, others) for kind in ("gradient", "parameter")}
        row = dataclasses.replace(row, worst={kind: worst for kind, (_, worst) in measured.items()})
        if any(each.kind == "layout" for each in row.facts):
            return row
        judged = {
            kind: furthest
            for kind, (furthest, _) in measured.items()
            if not (put_together and kind == "gradient")
        }
        vectors = [[_VECTORS[kind](each) for each in (step, *others)] for kind in judged]
        return dataclasses.replace(
            row,
            tensors=judged,
            groups=agreeing(*(own for _, *own in vectors)),
            beside=tuple(self._beside(step, others[0])),
            identical=not put_together and all(len(agreeing(each)) == 1 for each in vectors),
            so_far=self.so_far,
        )

    def _gather(self, **values: float) -> None:
        self.so_far = dataclasses.replace(self.so_far, **values)  # type: ignore[arg-type]

    # ---- numbers of the script

    def _facts(self, step: Step, ranks: Sequence[Step], others: Sequence[Step]) -> Iterator[Difference]:
        """From cause to effect: layout, learning rates, losses, decisions, gradients before clipping. Another layout is
        the last that is said."""
        scale = self.so_far.loss_scale
        for rank, (own, other) in enumerate(zip(ranks, others, strict=True)):
            in_order = in_order_of(own, step.layout) is not None
            if not in_order or (not self.port and own.optimizer != step.optimizer):
                counts = f"{len(own.layout.shapes)} parameters instead of {len(step.layout.shapes)}"
                words = f"optimizer {step.optimizer} has {counts}"
                if in_order:
                    words = f"optimizer {own.optimizer} steps where optimizer {step.optimizer} did"
                yield Difference("layout", np.inf, step.number, rank, words)
                return
            yield from rate_differences(step, other, rank, self.port)
            losses = number_differences("loss", step.losses, other.losses, step.number, rank, scale)
            yield from (dataclasses.replace(each, judged=not self.port) for each in losses)
            if self.port:
                yield from decision_differences(step, other, rank)
        if self.port:
            yield from stream_differences(step.number, ranks)
        yield from _before_clipping(step, others)
        if self.port and not step.layout.names:  # no parameter has a gradient: the losses are all there is
            yield from mean_loss_differences(step, others, scale, self.tolerance)

    # ---- gradients and parameters

    def _note_noisy(self, step: Step, others: Sequence[Step]) -> None:
        """Elements whose gradient is nothing but rounding."""
        a = step.gradients
        for _, other in _unlike(others, "gradient"):
            b = other.gradients
            if a.values is None or b.values is None:
                continue
            noisy = noisy_elements(a, b, self.tolerance)
            sizes = np.maximum(np.abs(a.values[noisy]), np.abs(b.values[noisy]))
            self._gather(noise_floor=max(self.so_far.noise_floor, float(sizes.max(initial=0.0))))
            self.tensors.add(self.noisy, noisy)
        self._gather(noisy=sum(int(mask.sum()) for mask in self.noisy.values()))

    def _compare_tensors(
        self, kind: str, step: Step, others: Sequence[Step]
    ) -> tuple[tuple[Difference, ...], Doubles]:
        """The furthest tensor of rank 0, and of each rank that is not the same; and for each tensor the worst rank."""
        expected, sizes, measured = _VECTORS[kind](step), [], []
        for rank, other in _unlike(others, kind):
            actual = _VECTORS[kind](other)
            apart, missing = _apart(kind, expected, actual, self._left_out(kind, step, actual))
            measured.append(_furthest(kind, step, actual, apart, rank, missing))
            sizes.append(np.where(np.isnan(apart), np.inf, apart))
        worst: Doubles = np.max(sizes, axis=0)
        return tuple(measured), worst

    def _left_out(self, kind: str, step: Step, actual: Vector) -> Mask | None:
        """Parameters that follow a gradient of pure rounding; how far apart they came is noted."""
        noisy, a = self.tensors.known(self.noisy) if kind == "parameter" else None, step.parameters
        if noisy is None or a.values is None or actual.values is None:
            return None
        apart = distances_between(a.values[noisy], actual.values[noisy])
        relative = relative_differences(kind, a, actual, ~noisy)
        self._gather(
            noise=max([self.so_far.noise, *relative.tolist()]),
            noise_floor=max(self.so_far.noise_floor, float(apart.max(initial=0.0))),
        )
        return noisy

    # ---- optimizer state and buffers

    def _beside(self, step: Step, rank0: Step) -> Iterator[Difference]:
        """On rank 0: replica 0's buffers are the ones that survive under DataParallel."""
        room = self.tolerance.room_behind(self.so_far.noise)
        for kind, expected, actual in (
            ("optimizer state", step.state, rank0.state),
            ("buffer", step.buffers, rank0.buffers),
        ):
            if expected is not None and actual is not None:
                name, size = named_difference(expected, actual, together=kind == "optimizer state")
                yield Difference(kind, size, step.number, 0, name, room=room)

    # ---- natural noise

    def _with_noise(self, row: StepRow, step: Step, nudged: Step) -> StepRow:
        """With the largest differences of DataParallel moved by an ulp; what the port leaves out is left out, too."""
        moved = in_order_of(nudged, step.layout) or nudged
        natural = dict.fromkeys((*_VECTORS, "buffer"), 0.0)
        if moved.layout.shapes == step.layout.shapes:
            left_out = {"parameter": self._noise_left_out(step, moved)}
            for kind, vector_of in _VECTORS.items():
                a, b = vector_of(step), vector_of(moved)
                if a is not None and b is not None:
                    sizes, _ = _apart(kind, a, b, left_out.get(kind))
                    finite = sizes[np.isfinite(sizes)]  # None on one side says nothing of rounding
                    natural[kind] = float(finite.max(initial=0.0))
        if step.buffers is not None and moved.buffers is not None:
            natural["buffer"] = named_difference(step.buffers, moved.buffers, together=False)[1]
        return dataclasses.replace(row, natural=natural, nudged_loss=mean_loss(moved.losses))

    def _noise_left_out(self, step: Step, moved: Step) -> Mask | None:
        a, b = step.gradients, moved.gradients
        if a.values is None or b.values is None or not self.tolerance.noise:
            return None
        self.tensors.add(self.noisy_by_nudge, noisy_elements(a, b, self.tolerance))
        known = [self.tensors.known(masks) for masks in (self.noisy, self.noisy_by_nudge)]
        masks = [mask for mask in known if mask is not None]
        return np.logical_or.reduce(masks) if masks else None


@dataclass
class StepTensors:
    """The tensors of DataParallel's step, by numbers; another optimizer that takes one over finds its number again.

    A name does not tell: netG.conv.weight and netD.conv.weight are both called conv.weight. So a tensor is another
    one's if that optimizer begins with the bits that were left in it.
    """

    initial: Callable[[int], Vector]  # what an optimizer begins with
    numbers: dict[int, list[int]] = field(default_factory=dict)  # optimizer -> of each place
    left: dict[int, tuple[Layout, Hashes]] = field(default_factory=dict)  # optimizer -> since its last step
    count: int = 0
    here: Sequence[int] = ()  # of the step
    layout: Layout = Layout()

    def come_to(self, step: Step) -> None:
        """Steps come in order; an optimizer may get more parameters, behind the others."""
        numbers = self.numbers.setdefault(step.optimizer, [])
        if len(numbers) < len(step.layout.names):
            begun = self.initial(step.optimizer)
            starts = [*zip(begun.layout.names, begun.hashes.tolist(), strict=True)]
            known = {
                (name, bits): number
                for optimizer, (layout, hashes) in self.left.items()
                for name, bits, number in zip(
                    layout.names, hashes.tolist(), self.numbers[optimizer], strict=False
                )
            }
            for place in range(len(numbers), len(step.layout.names)):
                self.count += 1
                numbers.append(known.get(starts[place], self.count) if place < len(starts) else self.count)
        self.here, self.layout = numbers[: len(step.layout.names)], step.layout
        self.left[step.optimizer] = step.layout, step.parameters.hashes

    def add(self, masks: dict[int, Mask], noisy: Mask) -> None:
        """Once noisy, an element stays so."""
        for number, place in zip(self.here, self.layout.slices, strict=True):
            if noisy[place].any():
                masks[number] = masks.get(number, False) | noisy[place]

    def known(self, masks: Mapping[int, Mask]) -> Mask | None:
        """The noisy elements of the step; None: there are none."""
        if masks.keys().isdisjoint(self.here):
            return None
        sizes = zip(self.here, self.layout.sizes, strict=True)
        return np.concatenate([masks.get(number, np.zeros(size, dtype=bool)) for number, size in sizes])


def noisy_elements(a: Vector, b: Vector, tolerance: Tolerance) -> Mask:
    """Those of two gradients, whose values are known, that differ and are nothing but rounding beside the largest."""
    assert a.values is not None
    assert b.values is not None
    sizes = np.maximum(np.abs(a.values), np.abs(b.values))
    noisy: Mask = (sizes <= tolerance.noise * largest(a.values)) & (distances_between(a.values, b.values) > 0)
    return noisy


def _unlike(others: Sequence[Step], kind: str) -> Iterator[tuple[int, Step]]:
    """Rank 0, and each rank that has not its bits."""
    hashes = [_VECTORS[kind](other).hashes for other in others]
    pairs = enumerate(others)
    return (pair for pair in pairs if pair[0] == 0 or not np.array_equal(hashes[pair[0]], hashes[0]))


def _apart(kind: str, a: Vector, b: Vector, left_out: Mask | None) -> tuple[Doubles, list[int]]:
    """How far apart each tensor is; and those that one side has not, which are inf apart.

    None and zeros are different gradients: weight decay moves zeros (docs/semantics.md#unused-parameters).
    """
    sizes = relative_differences(kind, a, b, left_out)
    missing = np.flatnonzero((a.hashes == 0) != (b.hashes == 0)).tolist()
    sizes[missing] = np.inf
    return sizes, missing


def _furthest(
    kind: str, step: Step, actual: Vector, sizes: Doubles, rank: int, missing: Sequence[int] = ()
) -> Difference:
    expected, names = _VECTORS[kind](step), step.layout.names
    if missing:
        where = " under DataParallel" * bool(expected.hashes[missing[0]] == 0)
        return Difference(kind, np.inf, step.number, rank, f"{names[missing[0]]} (there is none{where})")
    if not sizes.size:
        return Difference(kind, 0.0, step.number, rank)
    at = int(np.argmax(np.nan_to_num(sizes, nan=np.inf)))
    norms = norm_of(expected, at), norm_of(actual, at)
    return Difference(kind, float(sizes[at]), step.number, rank, names[at], *norms)


def _before_clipping(step: Step, others: Sequence[Step]) -> Iterator[Difference]:
    """What clipping hides: a gradient that is W times too large is DataParallel's once both have the norm 1.

    A rank that clips the sum of the ranks to W times the norm, and divides later, does the same as DataParallel:
    gradients may be apart by as much as the limits are.
    """
    kind, a, first = GRADIENTS[0], step.unclipped, others[0].unclipped if others else None
    for rank, other in enumerate(others):
        b = other.unclipped
        if a is None or b is None or (rank and first is not None and np.array_equal(b.hashes, first.hashes)):
            continue
        sizes = relative_differences(kind, a, b)
        if (factor := _limits_apart(step, other)) != 1.0:
            in_measure = relative_differences(kind, a, scaled(b, factor))
            sizes = min(sizes, in_measure, key=lambda each: float(each.max(initial=0.0)))
        yield _furthest(kind, step, b, sizes, rank)


def _limits_apart(step: Step, other: Step) -> float:
    """How often as large the limits of clipping are as on the other side; 1 if there is no such number."""
    expected, actual = (sorted(set(each.limits)) for each in (step, other))
    factors = {a / b for a, b in zip(expected, actual, strict=False) if b}
    return factors.pop() if len(expected) == len(actual) and len(factors) == 1 else 1.0


def is_put_together(step: Step, ranks: Sequence[Step], tolerance: Tolerance) -> bool:
    """Whether results of autograd.grad, which nothing synchronises, make DataParallel's as a mean or a sum."""
    if step.source != "grad":
        return False
    expected, *actual = (each.gradients.sketched(step.layout)[:, 1:] for each in (step, *ranks))
    allowed = FACTOR * tolerance.epsilon * largest(expected)
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is nan, and nan is not allowed
        joined = np.mean(actual, axis=0), np.sum(actual, axis=0)
        return any(np.abs(each - expected).max(initial=0.0) <= allowed for each in joined)
