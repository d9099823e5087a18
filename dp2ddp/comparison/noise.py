"""Natural noise: how far apart two runs of DataParallel come that start an ulp apart, as a table's rows say; and what
of the others' rows it makes a difference. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dp2ddp.comparison.differences import KINDS, TINY, Difference, array_difference, tensor_differences
from dp2ddp.comparison.step_table import SoFar, StepRow
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.trace.digests import Doubles
from dp2ddp.trace.records import Trace

AT_END = 1 << 60  # a step behind all others
_KINDS = ("gradient before clipping", "gradient", "loss", "parameter", "buffer")
# kinds of differences that have the noise of others
_LIKE = {
    "initial state": "parameter",  # an optimizer may take over what others have trained
    "optimizer state": "gradient",  # averages of gradients and of their squares
    "unstepped parameter": "parameter",
    "final parameter": "parameter",
    "final buffer": "buffer",
}


class NoiseAtEnd(NamedTuple):
    """How far apart two DataParallel runs came that start an ulp apart, and what of it is allowed."""

    gradients: float
    parameters: float
    losses: float
    ratio: float | None  # difference / noise, where it is largest
    allowed_ratio: float
    hides_from: int | None  # the first step at which a fault could hide in it


@dataclass
class Noise:
    """For each step the largest so far, over all tensors; one ulp at least."""

    epsilon: float
    ending: float = 0.0  # of what comes after the last step
    so_far: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})
    left: tuple[int, float] = (-1, 0.0)  # the last step, and the noise of the buffers behind it
    loss_scale: float = TINY  # the largest loss so far: one near 0 is a difference of large numbers

    @classmethod
    def between(cls, reference: Trace, nudged: Trace, epsilon: float) -> Noise:
        """What two runs of DataParallel leave, of which one is moved by an ulp; their steps are added as rows."""
        a, b = reference.buffers(), nudged.buffers()
        buffers = [array_difference(a[name], b[name]) for name in a.keys() & b.keys()]
        both = [trace.end.losses if trace.end else () for trace in (reference, nudged)]
        losses = (abs(a - b) / max(abs(a), TINY) for a, b in zip(*both, strict=False))
        tensors = (each.size for each in tensor_differences(reference.final, nudged.final))
        last = min(len(reference), len(nudged)) - 1
        return cls(epsilon, _largest([*tensors, *losses]), left=(last, _largest(buffers)))

    def add(self, row: StepRow) -> None:
        """A step of both, if both still go on."""
        if row.natural is None:
            return
        expected, actual = np.nan_to_num([row.losses[0], row.nudged_loss])
        self.loss_scale = max(self.loss_scale, abs(expected))
        now = {**row.natural, "loss": abs(expected - actual) / self.loss_scale}
        now["buffer"] = max(now["buffer"], self.left[1] if row.step == self.left[0] else 0.0)
        for kind in _KINDS:  # clipping takes noise away, and a loss may be right by luck
            like = now["gradient"] if kind in ("gradient before clipping", "loss") else 0.0
            known = self.so_far[kind]
            known.append(max(self.epsilon, _largest([now[kind], like]), *known[-1:]))

    def of(self, kind: str, step: int) -> float:
        """The noise of a kind of difference (differences.KINDS) at a step; after the last step, what it was there."""
        known = self.so_far.get(_LIKE.get(kind, kind))
        if known is None:
            return 2.0**-52  # numbers of Python, as the script says them
        if step < len(known):
            return known[step]
        return max(known[-1] if known else self.epsilon, self.ending)

    @property
    def largest(self) -> float:
        """The largest noise of any kind, at the end."""
        return max(self.of(kind, AT_END) for kind in ("gradient", "parameter", "loss", "buffer"))

    def each_step(self, count: int) -> Doubles:
        """The larger one of gradients and parameters at each step, (count,), for a chart."""
        larger = np.maximum(self.so_far["gradient"], self.so_far["parameter"])[:count]
        return np.pad(larger, (0, count - len(larger)), constant_values=larger[-1] if len(larger) else np.nan)

    def allowed(self, kind: str, step: int) -> float:
        """How large a difference of this kind may be at a step, relative: FACTOR times the noise."""
        return FACTOR * self.of(kind, step)


def _largest(sizes: Sequence[float]) -> float:
    """What is missing on one side, or no number there, tells nothing about rounding."""
    return max((float(size) for size in sizes if np.isfinite(size)), default=0.0)


@dataclass
class Findings:
    """Differences, judged by their noise, up to the first step with one that is not allowed."""

    epsilon: float
    natural: Noise
    judged: list[Difference] = field(default_factory=list)
    evidence: list[Difference] = field(default_factory=list)  # differs, and may
    bad: list[Difference] = field(default_factory=list)  # at the first step that has any
    identical_steps: int = 0
    so_far: SoFar = SoFar()
    agreeing: tuple[tuple[int, ...], ...] = ()

    def judge(self, row: StepRow) -> None:
        """A step, from cause to effect: facts, gradients, parameters, what lies beside them."""
        self.so_far = row.so_far
        self.add(*row.facts)
        for measured in row.tensors.values():
            self.add(*measured)
        if self.bad:
            self.agreeing = self.agreeing or row.groups
        self.add(*row.beside)
        self.identical_steps += row.identical and not self.bad

    def add(self, *measured: Difference) -> None:
        """Judge these."""
        for each in measured:
            allowed = max(self.natural.allowed(each.kind, each.step), each.room)
            noise = self.natural.of(each.kind, each.step)
            own = dataclasses.replace(each, noise=noise, allowed=allowed, epsilon=self.epsilon)
            (self.judged if own.judged else self.evidence).append(own)
            self.bad += [own] * (own.judged and not own.is_allowed)

    @property
    def largest(self) -> Difference | None:
        """The largest of all."""
        return max(self.judged, key=lambda each: each.size, default=None)

    @property
    def worst(self) -> Difference | None:
        """The largest in terms of noise; not what is within the room of a gradient of pure rounding."""
        counted = (
            each for each in self.judged if not each.is_allowed or each.size > each.room or not each.size
        )
        return max(counted, key=lambda each: each.noise_ratio, default=None)

    @property
    def causes(self) -> list[Difference]:
        """The nearest to the cause first; behind them what also differs at that step, and may."""
        if not self.bad:
            return []
        first, *others = _sorted(self.bad)
        beside = [each for each in self.evidence if each.step == first.step and not each.is_allowed]
        return [first, *_sorted([*others, *beside])]


def _sorted(differences: list[Difference]) -> list[Difference]:
    return sorted(differences, key=lambda each: (KINDS.index(each.kind), each.rank))
