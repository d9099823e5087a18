"""What diagnosis looks at: the records of both runs, what was found different, and the step where it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.differences import ending_differences
from dp2ddp.comparison.matching import OptimizerStart, in_order_of, matched_steps, starts
from dp2ddp.comparison.output_comparison import Outside
from dp2ddp.comparison.script_facts import CastOnOneSide, casts_on_one_side
from dp2ddp.trace.digests import Doubles
from dp2ddp.trace.records import Draw, Forward, Layout, Step, Trace, Vector

Rows = tuple[int, ...]  # digests


@dataclass(frozen=True)
class Losses:
    """The sums of the losses of a step."""

    whole: float  # DataParallel's
    parts: tuple[float, ...]  # of each rank
    rows: tuple[int, ...]  # that went through a wrapped model on each rank

    @property
    def mean(self) -> float:
        """The ranks' plain mean."""
        return sum(self.parts) / max(len(self.parts), 1)

    @property
    def weighted(self) -> float:
        """Their mean, weighted by their rows; plain where nothing is known of rows."""
        share = self.rows if sum(self.rows) else [1] * len(self.parts)
        return sum(part * count for part, count in zip(self.parts, share, strict=True)) / sum(share)


@dataclass(frozen=True)
class Batch:
    """What one forward call of a step was given: DataParallel's rows, and those of each rank."""

    reference: Rows
    ranks: tuple[Rows, ...]

    @cached_property
    def expected(self) -> Counter[int]:
        """How often each row is in DataParallel's batch: digest -> count."""
        return Counter(self.reference)

    @cached_property
    def actual(self) -> Counter[int]:
        """How often each row is in the batch of all ranks together: digest -> count."""
        return Counter(row for rows in self.ranks for row in rows)

    @property
    def same(self) -> bool:
        """Whether the ranks together have DataParallel's rows, in whatever order."""
        return self.expected == self.actual

    @property
    def part(self) -> bool:
        """Whether the ranks have some of the rows, and no others."""
        return self.actual < self.expected


@dataclass(frozen=True)
class MatchedStep:
    """A step of DataParallel, and the step of each rank that stands for it."""

    reference: Step
    ranks: tuple[Step, ...]

    @property
    def number(self) -> int:
        """The step's number under DataParallel."""
        return self.reference.number

    @property
    def whole(self) -> bool:
        """Whether the tensors of all can be compared one by one."""
        return all(rank.layout.shapes == self.reference.layout.shapes for rank in self.ranks)

    @property
    def all(self) -> tuple[Step, ...]:
        """DataParallel's, then the ranks'."""
        return self.reference, *self.ranks

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Call by call where all made as many, else all rows of the step together; nothing where they are not known."""
        expected, *actual = map(calls_of, self.all)
        if not expected or not all(actual):
            return ()
        if any(len(calls) != len(expected) for calls in actual):
            batch = Batch(sum(expected, ()), tuple(sum(calls, ()) for calls in actual))
            # a model that is called without its wrapper, or a step that was skipped: not other rows
            passes = {len(step.losses) for step in self.all}
            skipped = any(step.skipped for step in self.all)
            return () if batch.part and (skipped or len(passes) == 1) else (batch,)
        return tuple(Batch(*calls) for calls in zip(expected, zip(*actual, strict=True), strict=True))

    @property
    def rows_of_batches(self) -> Counter[int]:
        """How often each row is in the batches of the ranks."""
        return sum((each.actual for each in self.batches), Counter[int]())

    @property
    def rows_on_ranks(self) -> set[int]:
        """Whatever the ranks train on."""
        return {row for rank in self.ranks for rows in calls_of(rank) for row in rows}

    @cached_property
    def losses(self) -> Losses:
        """What backward was called on."""
        rows = tuple(sum(map(sum, rank.rows)) for rank in self.ranks)
        return Losses(sum(self.reference.losses), tuple(sum(rank.losses) for rank in self.ranks), rows)

    @cached_property
    def gradients(self) -> list[Doubles]:
        """Projections of what the optimizer was given: DataParallel's, then the ranks'."""
        return [projected(each.gradients, self.reference.layout) for each in self.all]

    @cached_property
    def raw_gradients(self) -> list[Doubles]:
        """The same before gradients were clipped, where that is known."""
        expected, actual = self.unclipped()
        return [projected(each, self.reference.layout) for each in (expected, *actual)]

    @property
    def gradients_agree(self) -> bool:
        """Whether rank 0's gradients are DataParallel's."""
        return fits(distance(*self.gradients[:2]))

    def unclipped(self) -> tuple[Vector, tuple[Vector, ...]]:
        """Gradients as backward left them: before they were clipped, where that is known."""
        expected = self.reference.unclipped or self.reference.gradients
        return expected, tuple(rank.unclipped or rank.gradients for rank in self.ranks)


@dataclass(frozen=True)
class Evidence:
    """Everything that is known about a pair of runs on `world` devices."""

    world: int
    reference: Trace
    ranks: tuple[Trace, ...]
    comparison: Comparison
    outside: Outside = Outside()
    random_only: bool | None = None  # with DataParallel's random numbers both train the same; None: not tried
    unsteady: str = ""  # where DataParallel, run twice, parts from itself
    by_hashes: bool = False  # training is the same where strings have the same hashes on all ranks
    other_draw: bool = False  # initial weights that differ are draws of one distribution
    edits: Mapping[str, Sequence[str]] = field(default_factory=dict)  # our rule -> "train_ddp.py:33"

    @property
    def is_at_step(self) -> bool:
        """Whether training differs from a step on."""
        return self._first_step[1] is not None

    @property
    def here(self) -> MatchedStep:
        """The step with the first difference (`is_at_step`)."""
        assert self._first_step[1] is not None
        return self._first_step[1]

    @property
    def before(self) -> MatchedStep | None:
        """The step before it, of the same optimizer."""
        return self._first_step[0]

    @cached_property
    def _first_step(self) -> tuple[MatchedStep | None, MatchedStep | None]:
        """With the one before it."""
        last: dict[int, MatchedStep] = {}  # of an optimizer
        for step in self._matched_steps() if self.comparison.first else ():
            assert self.comparison.first is not None
            if step.number == self.comparison.first.step:
                return last.get(step.reference.optimizer), step
            last[step.reference.optimizer] = step
        return None, None

    @cached_property
    def steps_of_all(self) -> tuple[MatchedStep, ...]:
        """Step by step, as long as all go on, without tensors."""
        steps = self._matched_steps()
        return tuple(MatchedStep(_facts(each.reference), tuple(map(_facts, each.ranks))) for each in steps)

    @cached_property
    def reference_steps(self) -> tuple[Step, ...]:
        """DataParallel's steps without tensors, with rows that the ranks' can be compared with."""
        return tuple(_facts(self._comparable(step)) for step in self.reference.steps())

    @cached_property
    def reference_rows(self) -> list[Counter[int]]:
        """How often each row is in each step of DataParallel."""
        return [Counter(row for rows in calls_of(step) for row in rows) for step in self.reference_steps]

    @cached_property
    def samples(self) -> dict[int, int]:
        """digest of a row of DataParallel's -> index of the sample."""
        return {row: index for step in self.reference_steps for row, index in samples_of(step).items()}

    @cached_property
    def orders(self) -> list[list[int]]:
        """The samples that the step's loader takes in the whole run, in order: DataParallel's, then each rank's."""
        orders = []
        for trace, step in zip((self.reference, *self.ranks), self.here.all, strict=True):
            loader = next((draw.loader for draw in step.draws if draw.indices), -1)
            draws = (draw for line in trace.lines for draw in line["draws"])
            orders.append([index for of, indices, _ in draws if of == loader for index in indices or ()])
        return orders

    @cached_property
    def other_batch(self) -> Batch | None:
        """The first forward call of the step that was given other rows.

        What another model computed (a generator's pictures) may differ in a last digit: calls that were given other
        bits in the step before, which was right, say nothing.
        """
        before = self.before.batches if self.before else ()
        for place, batch in enumerate(self.here.batches if self.is_at_step else ()):
            if not batch.same and (place >= len(before) or before[place].same):
                return batch
        return None

    @property
    def starts(self) -> Iterator[OptimizerStart]:
        """What optimizers begin with, up to the step with the first difference."""
        first = self.comparison.first
        begun = starts(self.reference, self.ranks, self._matched)
        return (start for start in begun if first is None or start.step <= first.step)

    @property
    def casts(self) -> Iterator[CastOnOneSide]:
        """Casts to half precision that one side alone makes."""
        return casts_on_one_side(self.reference, self.ranks, self._matched)

    @property
    def _matched(self) -> Sequence[Sequence[int]]:
        return self.comparison.matched or [range(len(trace)) for trace in self.ranks]

    def _matched_steps(self) -> Iterator[MatchedStep]:
        traces = [matched_steps(*each) for each in zip(self.ranks, self._matched, strict=True)]
        for step, *ranks in zip(self.reference.steps(), *traces, strict=False):
            own = (in_order_of(rank, step.layout) or rank for rank in map(self._comparable, ranks))
            yield MatchedStep(self._comparable(step), tuple(own))

    def apart_at_end(self, kind: str) -> list[str]:
        """Tensors of a kind that do not hold the same on all ranks when the script ends."""
        first, *others = self.ranks
        tensors = (each for other in others for each in ending_differences(first, other, 0.0))
        return list(dict.fromkeys(each.name for each in tensors if each.size and each.kind == kind))

    @cached_property
    def _other_arguments(self) -> bool:
        """Whether forward is given other tensors on one side: labels beside the rows."""
        firsts = [
            next((f.firsts for s in trace.steps() for f in s.forwards if f.training), None)
            for trace in (self.reference, *self.ranks[:1])
        ]
        return len({bool(each) for each in firsts if each is not None}) > 1

    def _comparable(self, step: Step) -> Step:
        """With rows known by their first tensor, where the others are there on one side only."""
        if not self._other_arguments:
            return step
        forwards = tuple(
            Forward(each.training, each.rows, each.firsts or each.digests) for each in step.forwards
        )
        return replace(step, forwards=forwards)


def calls_of(step: Step) -> list[Rows]:
    """Row digests of each forward call in training; of all forward calls, if none is."""
    training = [forward.digests for forward in step.forwards if forward.training and forward.digests]
    return training or [forward.digests for forward in step.forwards if forward.digests]


def draws_of(step: Step) -> list[Draw]:
    """From the loader that is trained on: evaluation comes before the step's own batch."""
    trained = {draw.loader for draw in step.draws[-1:]}
    return [draw for draw in step.draws if draw.loader in trained]


def samples_of(step: Step) -> dict[int, int]:
    """digest of a row -> index of the sample, where the batches of the loader are what the model was given."""
    indices = [index for draw in step.draws for index in draw.indices or ()]
    rows = [row for calls in calls_of(step)[:1] for row in calls]
    return dict(zip(rows, indices, strict=True)) if len(indices) == len(rows) else {}


_NO_TENSORS = Vector(np.zeros(0, dtype=np.uint64), None, None)


def _facts(step: Step) -> Step:
    return replace(
        step, gradients=_NO_TENSORS, parameters=_NO_TENSORS, unclipped=None, state=None, buffers=None
    )


def projected(vector: Vector, layout: Layout) -> Doubles:
    """Numbers that stand for a vector and are linear in it: sums and multiples are recognised without its values."""
    return vector.sketched(layout)[:, 1:].reshape(-1)


def multiple(target: Doubles, of: Doubles) -> tuple[float, float]:
    """The factor that fits best, and what is left, relative: (2.0, 1e-16) for a target that is twice the other."""
    square = float(of @ of)
    factor = float(target @ of) / square if square > 0 else 0.0
    return factor, distance(target, factor * of)


def distance(a: Doubles, b: Doubles) -> float:
    """|a - b| relative to the larger of |a| and |b|, in 0..2; inf where something is not a number."""
    scale = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    norm = float(np.linalg.norm(a - b))
    if not np.isfinite(norm):
        return float("inf")
    return norm / scale if scale > 0 else 0.0


EXACT = 1e-8  # of float64 gradients of which one is a simple function of others


def fits(left: float) -> bool:
    """Whether a relative residue is nothing but rounding (EXACT)."""
    return left < EXACT
