"""What diagnosis looks at: the records of both runs, what was found different, and the step where it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.matching import in_order_of, matched_steps
from dp2ddp.comparison.output_comparison import FilesComparison, TextComparison
from dp2ddp.trace.records import Forward, Layout, Step, Trace, Vector

Array = npt.NDArray[np.float64]


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
    stdout: TextComparison
    printing_ranks: tuple[int, ...]
    files: FilesComparison
    codes: tuple[int, int] = (0, 0)
    random_only: bool | None = None  # with DataParallel's random numbers both train the same; None: not tried
    unsteady: str = ""  # where DataParallel, run twice, parts from itself
    by_hashes: bool = False  # training is the same where strings have the same hashes on all ranks
    other_draw: bool = False  # initial weights that differ are draws of one distribution
    edits: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # of our conversion: rule -> "train_ddp.py:33"

    @cached_property
    def matched_step(self) -> MatchedStep | None:
        """The step with the first difference; None if training is the same."""
        first = self.comparison.first
        return None if first is None else self._steps_by_number.get(first.step)

    @cached_property
    def before(self) -> MatchedStep | None:
        """The step before it, of the same optimizer."""
        if self.matched_step is None:
            return None
        earlier = (
            matched_step
            for number, matched_step in self._steps_by_number.items()
            if number < self.matched_step.number
            and matched_step.reference.optimizer == self.matched_step.reference.optimizer
        )
        return max(earlier, key=lambda matched_step: matched_step.number, default=None)

    @cached_property
    def _steps_by_number(self) -> dict[int, MatchedStep]:
        """The step with the first difference, and the last one of each optimizer before it."""
        kept: dict[int, MatchedStep] = {}
        last: dict[int, int] = {}
        first = -1 if self.comparison.first is None else self.comparison.first.step
        for matched_step in self.steps_of_all():
            if matched_step.number > first:
                break
            if matched_step.number < first:
                kept.pop(last.get(matched_step.reference.optimizer, -1), None)
                last[matched_step.reference.optimizer] = matched_step.number
            kept[matched_step.number] = matched_step
        return kept

    def steps_of_all(self) -> Iterator[MatchedStep]:
        """Step by step, as long as all go on."""
        others = zip(*map(self._steps_of, range(len(self.ranks))), strict=False)
        for step, ranks in zip(self.reference_steps(), others, strict=False):
            yield MatchedStep(step, tuple(in_order_of(rank, step.layout) or rank for rank in ranks))

    def reference_steps(self) -> Iterator[Step]:
        """DataParallel's steps, with rows that the ranks' can be compared with."""
        return map(self._comparable, self.reference.steps())

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

    def _steps_of(self, rank: int) -> Iterator[Step]:
        """Those that stand for DataParallel's."""
        trace = self.ranks[rank]
        matched = self.comparison.matched
        return map(self._comparable, matched_steps(trace, matched[rank]) if matched else trace.steps())


def projected(vector: Vector, layout: Layout) -> Array:
    """Numbers that stand for a vector and are linear in it: sums and multiples are recognised without its values."""
    return vector.sketched(layout)[:, 1:].reshape(-1)


def multiple(target: Array, of: Array) -> tuple[float, float]:
    """The factor that fits best, and what is left, relative: (2.0, 1e-16) for a target that is twice the other."""
    square = float(of @ of)
    factor = float(target @ of) / square if square > 0 else 0.0
    return factor, distance(target, factor * of)


def distance(a: Array, b: Array) -> float:
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
