"""Natural noise: how far apart two runs of DataParallel come that start an ulp apart, as a table's rows say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dp2ddp.comparison.differences import TINY, Doubles, array_difference
from dp2ddp.comparison.ending import tensor_differences
from dp2ddp.comparison.step_table import StepRow
from dp2ddp.comparison.tolerance import FACTOR, Tolerance
from dp2ddp.trace.records import Trace

# kinds of differences that have the noise of others
_LIKE = {
    "optimizer state": "gradient",  # averages of gradients and of their squares
    "unstepped parameter": "parameter",
    "final parameter": "parameter",
    "final buffer": "buffer",
}


@dataclass(frozen=True)
class Noise:
    """For each step the largest so far, over all tensors; one ulp at least."""

    so_far: Mapping[str, Doubles]  # kind of difference -> (steps,)
    epsilon: float
    ending: float = 0.0  # of what comes after the last step

    def of(self, kind: str, step: int) -> float:
        """The noise of a kind of difference (differences.KINDS) at a step; after the last step, what it was there."""
        known = self.so_far.get(_LIKE.get(kind, kind))
        if known is None:
            return 2.0**-52  # numbers of Python, as the script says them
        if step < len(known):
            return float(known[step])
        last = float(known[-1]) if len(known) else self.epsilon
        return max(last, self.ending)

    @property
    def largest(self) -> float:
        """The largest noise of any kind, at the end."""
        return max(self.of(kind, 1 << 60) for kind in ("gradient", "parameter", "loss", "buffer"))

    def each_step(self, count: int) -> Doubles:
        """The larger one of gradients and parameters at each step, (count,), for a chart."""
        larger = np.maximum(self.so_far["gradient"], self.so_far["parameter"])[:count]
        return np.pad(larger, (0, count - len(larger)), constant_values=larger[-1] if len(larger) else np.nan)

    def allowed(self, kind: str, step: int) -> float:
        """How large a difference of this kind may be at a step, relative: FACTOR times the noise."""
        return FACTOR * self.of(kind, step)


def without_run(tolerance: Tolerance) -> Noise:
    """Where there is no second run: an ulp."""
    kinds = ("gradient before clipping", "gradient", "loss", "parameter", "buffer")
    return Noise(dict.fromkeys(kinds, np.zeros(0)), tolerance.epsilon)


def noise_between(reference: Trace, nudged: Trace, rows: Sequence[StepRow], tolerance: Tolerance) -> Noise:
    """The natural noise: how far apart two runs of DataParallel are at each step, of which one is moved by an ulp.

    rows: of a table that holds the second run as well.
    """
    measured = [row for row in rows if row.natural is not None]
    kinds = {
        kind: _so_far([row.natural[kind] for row in measured if row.natural], tolerance)
        for kind in ("gradient before clipping", "gradient", "parameter", "buffer")
    }
    kinds["gradient before clipping"] = np.maximum(kinds["gradient before clipping"], kinds["gradient"])
    losses = np.array([(row.losses[0], row.nudged_loss) for row in measured]).reshape(-1, 2)
    kinds["loss"] = np.maximum(_so_far(_loss_noise(np.nan_to_num(losses)), tolerance), kinds["gradient"])
    a, b = reference.buffers(), nudged.buffers()
    left = [array_difference(a[name], b[name]) for name in a.keys() & b.keys()]
    kinds["buffer"][-1:] = np.maximum(kinds["buffer"][-1:], _finite(left).max(initial=0.0))
    return Noise(kinds, tolerance.epsilon, _ending_noise(reference, nudged))


def _ending_noise(reference: Trace, nudged: Trace) -> float:
    """The largest of tensors and losses."""
    tensors = (each.size for each in tensor_differences(reference.final, nudged.final))
    both = [trace.end.losses if trace.end else () for trace in (reference, nudged)]
    losses = (abs(a - b) / max(abs(a), TINY) for a, b in zip(*both, strict=False))
    return float(_finite([*tensors, *losses]).max(initial=0.0))


def _so_far(sizes: Sequence[float] | Doubles, tolerance: Tolerance) -> Doubles:
    largest_yet: Doubles = np.maximum.accumulate(np.maximum(_finite(sizes), tolerance.epsilon))
    return largest_yet


def _finite(sizes: Sequence[float] | Doubles) -> Doubles:
    """What is missing on one side, or no number there, tells nothing about rounding."""
    known = np.asarray(sizes, dtype=np.float64)
    return np.where(np.isfinite(known), known, 0.0)


def _loss_noise(losses: Doubles) -> Doubles:
    """Relative to the largest loss so far: a loss near 0 is a difference of large numbers."""
    scale = np.maximum(np.maximum.accumulate(np.abs(losses[:, 0])), TINY)
    sizes: Doubles = np.abs(losses[:, 0] - losses[:, 1]) / scale
    return sizes
