"""Natural noise: how far apart two runs of DataParallel come that start an ulp apart. (two traces) -> Noise; pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dp2ddp.trace.records import Trace
from dp2ddp.verify.differences import TINY, Doubles, apart, largest, of_arrays, of_named, unclipped_apart
from dp2ddp.verify.ending import tensors_apart
from dp2ddp.verify.series import Noisy, Series, series_of
from dp2ddp.verify.tolerance import FACTOR, Tolerance


@dataclass(frozen=True)
class Noise:
    """For each step the largest so far, over all tensors; one ulp at least."""

    gradients: Doubles
    unclipped: Doubles  # gradients before clipping, which takes the noise of large ones away
    parameters: Doubles
    losses: Doubles
    buffers: Doubles
    epsilon: float
    ending: float = 0.0  # of what comes after the last step

    def of(self, kind: str, step: int) -> float:
        """Of a kind of difference at the step of this index; behind the last step, what it was there."""
        known = {
            "gradient": self.gradients,
            "gradient before clipping": self.unclipped,
            "optimizer state": self.gradients,  # averages of gradients and of their squares
            "parameter": self.parameters,
            "loss": self.losses,
            "buffer": self.buffers,
            "unstepped parameter": self.parameters,
            "final parameter": self.parameters,
            "final buffer": self.buffers,
        }.get(kind)
        if known is None:
            return 2.0**-52  # numbers of Python, as the script says them
        if step < len(known):
            return float(known[step])
        last = float(known[-1]) if len(known) else self.epsilon
        return max(last, self.ending)

    @property
    def largest(self) -> float:
        """Of all kinds, at the end."""
        return max(self.of(kind, 1 << 60) for kind in ("gradient", "parameter", "loss", "buffer"))

    @property
    def each_step(self) -> Doubles:
        """The larger one of gradients and parameters, for a chart."""
        larger: Doubles = np.maximum(self.gradients, self.parameters)
        return larger

    def allowed(self, kind: str, step: int) -> float:
        return FACTOR * self.of(kind, step)


def without_run(tolerance: Tolerance) -> Noise:
    """Where there is no second run: an ulp."""
    nothing = np.zeros(0)
    return Noise(nothing, nothing, nothing, nothing, nothing, tolerance.epsilon)


def noise_between(reference: Trace, nudged: Trace, noisy: Noisy, tolerance: Tolerance) -> Noise:
    """Of two runs of DataParallel. What is left out of the port's comparison is left out here."""
    both = _union(noisy, noisy_elements(reference, nudged, tolerance))
    series = series_of(reference, [nudged], both)
    gradients = _so_far(_worst(series.gradients), tolerance)
    unclipped = np.maximum(_so_far(_of_unclipped(reference, nudged, len(gradients)), tolerance), gradients)
    parameters = _so_far(_worst(series.parameters), tolerance)
    losses = np.maximum(_so_far(_of_losses(series), tolerance), gradients)
    buffers = _so_far(_of_buffers(reference, nudged, len(gradients)), tolerance)
    return Noise(
        gradients, unclipped, parameters, losses, buffers, tolerance.epsilon, _of_ending(reference, nudged)
    )


def _of_unclipped(reference: Trace, nudged: Trace, count: int) -> Doubles:
    sizes = np.zeros(count)
    for index, (ours, theirs) in enumerate(zip(reference.steps(), nudged.steps(), strict=False)):
        if ours.unclipped is not None and theirs.unclipped is not None:
            apart = unclipped_apart(ours.layout, ours.unclipped, theirs.unclipped)
            sizes[index] = max(apart, default=0.0)
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _of_buffers(reference: Trace, nudged: Trace, count: int) -> Doubles:
    """Of each step where they were kept, and at the end."""
    sizes = np.zeros(count)
    for index, (ours, theirs) in enumerate(zip(reference.steps(), nudged.steps(), strict=False)):
        if ours.buffers is not None and theirs.buffers is not None:
            sizes[index] = of_named(ours.buffers, theirs.buffers, together=False)[1]
    a, b = reference.buffers(), nudged.buffers()
    if count:
        sizes[-1] = max([sizes[-1], *(of_arrays(a[name], b[name]) for name in a.keys() & b.keys())])
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _of_ending(reference: Trace, nudged: Trace) -> float:
    """The largest of tensors and losses."""
    tensors = (each.size for each in tensors_apart(reference.final, nudged.final))
    both = [trace.end.losses if trace.end else () for trace in (reference, nudged)]
    losses = (abs(a - b) / max(abs(a), TINY) for a, b in zip(*both, strict=False))
    return max((size for size in (*tensors, *losses) if np.isfinite(size)), default=0.0)


def _worst(sizes: Doubles) -> Doubles:
    """Of each step; a tensor that is None or no number on one side tells nothing about rounding."""
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    worst: Doubles = finite.max(axis=1, initial=0.0)
    return worst


def _so_far(sizes: Doubles, tolerance: Tolerance) -> Doubles:
    largest_yet: Doubles = np.maximum.accumulate(np.maximum(sizes, tolerance.epsilon))
    return largest_yet


def _of_losses(series: Series) -> Doubles:
    """Relative to the largest loss so far: a loss near 0 is a difference of large numbers."""
    ours, theirs = np.nan_to_num(series.losses[:, 0]), np.nan_to_num(series.losses[:, 1])
    scale = np.maximum(np.maximum.accumulate(np.abs(ours)), TINY) if len(ours) else ours
    sizes: Doubles = np.abs(ours - theirs) / scale
    return np.where(np.isfinite(sizes), sizes, 0.0)


def noisy_elements(reference: Trace, other: Trace, tolerance: Tolerance) -> dict[int, npt.NDArray[np.bool_]]:
    """Optimizer -> elements whose gradient is nothing but rounding, as far as all values were kept."""
    found: dict[int, npt.NDArray[np.bool_]] = {}
    if not tolerance.noise:
        return found
    for ours, theirs in zip(reference.steps(), other.steps(), strict=False):
        a, b = ours.gradients.values, theirs.gradients.values
        if a is None or b is None:
            break
        if len(a) == len(b):
            sizes, before = np.maximum(np.abs(a), np.abs(b)), found.get(ours.optimizer)
            noisy = (sizes <= tolerance.noise * largest(a)) & (apart(a, b) > 0)
            found[ours.optimizer] = noisy if before is None else _either(before, noisy)
    return found


def _either(before: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """add_param_group: an optimizer gets more parameters, behind the others."""
    longer, shorter = sorted((before, now), key=len, reverse=True)
    either: npt.NDArray[np.bool_] = longer.copy()
    either[: len(shorter)] |= shorter
    return either


def _union(one: Noisy, other: Noisy) -> dict[int, npt.NDArray[np.bool_]]:
    united = dict(one)
    for optimizer, noisy in other.items():
        united[optimizer] = _either(united[optimizer], noisy) if optimizer in united else noisy
    return united
