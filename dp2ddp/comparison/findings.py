"""Judges the rows of a table, and what comes behind them: what differs, and whether rounding may have done it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from dp2ddp.comparison.differences import KINDS, Difference
from dp2ddp.comparison.noise import Noise
from dp2ddp.comparison.step_table import SoFar, StepRow
from dp2ddp.comparison.tolerance import Tolerance


@dataclass
class Findings:
    """What is collected while the steps go by, up to the first with a difference that is not allowed."""

    tolerance: Tolerance
    natural: Noise
    largest: Difference | None = None
    worst: Difference | None = None
    bad: list[Difference] = field(default_factory=list)  # at the first step that has any
    evidence: list[Difference] = field(default_factory=list)  # of the step: differs, and may
    identical_steps: int = 0
    so_far: SoFar = SoFar()
    agreeing: tuple[tuple[int, ...], ...] = ()

    def judge(self, row: StepRow) -> None:
        """A step, from cause to effect: facts, gradients, parameters, what lies beside them."""
        self.evidence, self.so_far = [], row.so_far
        self.add(*row.facts)
        for kind, measured in row.tensors.items():
            self.add(*measured)
            if self.bad:
                self.agreeing = self.agreeing or row.groups[kind]
        self.add(*row.beside)
        self.identical_steps += row.identical and not self.bad

    def add(self, *measured: Difference) -> None:
        """Judge differences by their noise."""
        for each in measured:
            noise = self.natural.of(each.kind, each.step)
            allowed = max(self.natural.allowed(each.kind, each.step), each.room)
            self._judge(
                dataclasses.replace(each, noise=noise, allowed=allowed, epsilon=self.tolerance.epsilon)
            )

    def _judge(self, difference: Difference) -> None:
        allowed = difference.size <= difference.allowed  # nan is not
        if not difference.judged:
            self.evidence += [difference] * (not allowed)
            return
        if self.largest is None or difference.size > self.largest.size:
            self.largest = difference
        counts = not allowed or difference.size > difference.room or not difference.size
        if counts and (self.worst is None or difference.noise_ratio > self.worst.noise_ratio):
            self.worst = difference
        self.bad += [difference] * (not allowed)

    @property
    def causes(self) -> list[Difference]:
        """The nearest to the cause first; behind them what also differs at that step, and may."""
        if not self.bad:
            return []
        first, *others = _sorted(self.bad)
        beside = [each for each in self.evidence if each.step == first.step]
        return [first, *_sorted([*others, *beside])]


def _sorted(differences: list[Difference]) -> list[Difference]:
    return sorted(differences, key=lambda each: (KINDS.index(each.kind), each.rank))
