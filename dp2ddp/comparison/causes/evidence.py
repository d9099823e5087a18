"""What diagnosis looks at: the records of both runs, what was found different, and the step where it begins."""

from __future__ import annotations

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
from dp2ddp.trace.records import Forward, Layout, Step, Trace, Vector


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
