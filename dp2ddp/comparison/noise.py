"""Natural noise: how far apart two runs of DataParallel come that start an ulp apart. (two traces) -> Noise; pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.differences import (
    TINY,
    Doubles,
    array_difference,
    distances_between,
    largest,
    named_difference,
    unclipped_differences,
)
from dp2ddp.comparison.ending import tensor_differences
from dp2ddp.comparison.series import Noisy, Series, series_of
from dp2ddp.comparison.tolerance import FACTOR, Tolerance
from dp2ddp.trace.records import Trace


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
        """The noise of a kind of difference (differences.KINDS) at a step; after the last step, what it was there."""
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
        """The largest noise of any kind, at the end."""
        return max(self.of(kind, 1 << 60) for kind in ("gradient", "parameter", "loss", "buffer"))

    @property
    def each_step(self) -> Doubles:
        """The larger one of gradients and parameters, for a chart."""
        larger: Doubles = np.maximum(self.gradients, self.parameters)
        return larger

    def allowed(self, kind: str, step: int) -> float:
        """How large a difference of this kind may be at a step, relative: FACTOR times the noise."""
        return FACTOR * self.of(kind, step)


def without_run(tolerance: Tolerance) -> Noise:
    """Where there is no second run: an ulp."""
    nothing = np.zeros(0)
    return Noise(nothing, nothing, nothing, nothing, nothing, tolerance.epsilon)


def noise_between(reference: Trace, nudged: Trace, noisy: Noisy, tolerance: Tolerance) -> Noise:
    """The natural noise: how far apart two runs of DataParallel are at each step, of which one is moved by an ulp.

    `noisy` is what is left out of the port's comparison (optimizer -> elements), and is left out here as well.
    """
    both = _union(noisy, noisy_elements(reference, nudged, tolerance))
    series = series_of(reference, [nudged], both)
    gradients = _so_far(_worst(series.gradients), tolerance)
    unclipped = np.maximum(_so_far(_unclipped_noise(reference, nudged, len(gradients)), tolerance), gradients)
    parameters = _so_far(_worst(series.parameters), tolerance)
    losses = np.maximum(_so_far(_loss_noise(series), tolerance), gradients)
    buffers = _so_far(_buffer_noise(reference, nudged, len(gradients)), tolerance)
    return Noise(
        gradients, unclipped, parameters, losses, buffers, tolerance.epsilon, _ending_noise(reference, nudged)
    )


def _unclipped_noise(reference: Trace, nudged: Trace, count: int) -> Doubles:
    sizes = np.zeros(count)
    for index, (expected, actual) in enumerate(zip(reference.steps(), nudged.steps(), strict=False)):
        if expected.unclipped is not None and actual.unclipped is not None:
            differences = unclipped_differences(expected.layout, expected.unclipped, actual.unclipped)
            sizes[index] = max(differences, default=0.0)
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _buffer_noise(reference: Trace, nudged: Trace, count: int) -> Doubles:
    """The largest relative difference of buffers, (steps,): where they were kept, and at the end."""
    sizes = np.zeros(count)
    for index, (expected, actual) in enumerate(zip(reference.steps(), nudged.steps(), strict=False)):
        if expected.buffers is not None and actual.buffers is not None:
            sizes[index] = named_difference(expected.buffers, actual.buffers, together=False)[1]
    a, b = reference.buffers(), nudged.buffers()
    if count:
        sizes[-1] = max([sizes[-1], *(array_difference(a[name], b[name]) for name in a.keys() & b.keys())])
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _ending_noise(reference: Trace, nudged: Trace) -> float:
    """The largest of tensors and losses."""
    tensors = (each.size for each in tensor_differences(reference.final, nudged.final))
    both = [trace.end.losses if trace.end else () for trace in (reference, nudged)]
    losses = (abs(a - b) / max(abs(a), TINY) for a, b in zip(*both, strict=False))
    return max((size for size in (*tensors, *losses) if np.isfinite(size)), default=0.0)


def _worst(sizes: Doubles) -> Doubles:
    """The largest of all tensors, (steps,); one that is None or no number on one side tells nothing about rounding."""
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    worst: Doubles = finite.max(axis=1, initial=0.0)
    return worst


def _so_far(sizes: Doubles, tolerance: Tolerance) -> Doubles:
    largest_yet: Doubles = np.maximum.accumulate(np.maximum(sizes, tolerance.epsilon))
    return largest_yet


def _loss_noise(series: Series) -> Doubles:
    """Relative to the largest loss so far: a loss near 0 is a difference of large numbers."""
    expected, actual = np.nan_to_num(series.losses[:, 0]), np.nan_to_num(series.losses[:, 1])
    scale = np.maximum(np.maximum.accumulate(np.abs(expected)), TINY) if len(expected) else expected
    sizes: Doubles = np.abs(expected - actual) / scale
    return np.where(np.isfinite(sizes), sizes, 0.0)


def noisy_elements(reference: Trace, other: Trace, tolerance: Tolerance) -> dict[int, npt.NDArray[np.bool_]]:
    """Optimizer -> elements whose gradient is nothing but rounding, as far as all values were kept."""
    elements: dict[int, npt.NDArray[np.bool_]] = {}
    if not tolerance.noise:
        return elements
    for expected, actual in zip(reference.steps(), other.steps(), strict=False):
        a, b = expected.gradients.values, actual.gradients.values
        if a is None or b is None:
            break
        if len(a) == len(b):
            sizes, before = np.maximum(np.abs(a), np.abs(b)), elements.get(expected.optimizer)
            noisy = (sizes <= tolerance.noise * largest(a)) & (distances_between(a, b) > 0)
            elements[expected.optimizer] = noisy if before is None else _either(before, noisy)
    return elements


def _either(before: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """add_param_group: an optimizer gets more parameters, behind the others."""
    longer, shorter = sorted((before, now), key=len, reverse=True)
    either: npt.NDArray[np.bool_] = longer.copy()
    either[: len(shorter)] |= shorter
    return either


def _union(first: Noisy, other: Noisy) -> dict[int, npt.NDArray[np.bool_]]:
    united = dict(first)
    for optimizer, noisy in other.items():
        united[optimizer] = _either(united[optimizer], noisy) if optimizer in united else noisy
    return united
