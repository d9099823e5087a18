"""How far apart two runs may be, and where the numbers come from.

Natural noise. Two right runs of one training are not equal: they add the same numbers in another order, and what that
rounds differently, training amplifies: not at all, or ten times in each step. No constant can be right for both. So
DataParallel is run a second time with its parameters moved by one ulp before the first step and after each
(perturb/steps.py), and a difference is judged by *difference / natural noise*: how often as far apart the port is as
DataParallel is from itself. What follows from that, and why:

- The noise at a step is the largest over all tensors and over all steps so far. For one tensor at one step it may be
  0 by luck (a coarse number, a step whose gradient cancels), and what once was rounded differently stays in the
  parameters. Gradients, parameters and losses have each their own.
- It is one ulp at least (`epsilon`): nothing can be computed better than that.
- `FACTOR` times the noise is allowed. A sum of n numbers in another order is off by sqrt(n) ulps in the typical case
  and n in the worst, while the nudge moves each number by one; sums over a batch and its positions have up to 10^6
  terms, sqrt of which is 1000. Measured (docs/log.md, "natural noise"): right ports lie below 30, faults above 10^6
  at the first step that they touch.
- The second run costs as much as the first, so there is none while no difference is larger than FACTOR ulps.
- Where FACTOR times the noise passes `HIDING`, a fault could hide in it (a loss weighted by uneven chunks is 1e-2 off,
  a forgotten eps 1e-5): then each step is judged by itself, in lockstep.

Gradients come before parameters: Adam makes a full step of a rounding zero, so a parameter may be far off while the
function is the same. Elements whose gradient is nothing but rounding (a bias in front of BatchNorm: 6e-16 where others
are 1; Adam: 7e-8 in one parameter, gradients equal to 8e-15) are left out of the comparison of
parameters in float64: their gradients go on being compared, and the report says how many there are.

float32 is judged the same way, with its own second run and its own ulp; there nothing is left out, because the noise
itself holds what Adam makes of rounding. Under autocast on both sides its ulp is too fine: a rank's loss is the mean of
fewer rows, so what becomes float16 is W times as large and rounded elsewhere, which moving parameters by an ulp of
float32 does not show (3e-4 in a right port without a GradScaler).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FACTOR = 1000.0
HIDING = 1e-6  # relative: no known fault is as small as this

_HALVES = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # rounding of one number
_HALF_ULPS = 4.0  # are allowed in sums of them, relative to the largest
_SPREAD = 10.0  # a running mean behind a noisy bias follows it, and so does what evaluation prints
# Adam's steps in float64 are below (lr * 6e-16 / eps); beyond it a difference is a difference
_MOST_NOISE = 1e-5


@dataclass(frozen=True)
class Tolerance:
    """Differences are relative: to the step's largest gradient, and to a parameter tensor's largest value."""

    dtype: str = "float64"
    epsilon: float = 2.0**-52  # one ulp
    noise: float = 1e-12  # a gradient this much below the step's largest one is rounding
    allowed: float = 1e-10  # in files: tensors, relative to their largest value
    number: float = 1e-9  # printed numbers; a log shows rounding in its last digits
    floor: float = 0.0  # absolute: a momentum, or a bias begun at 0, that holds nothing but rounding

    def room_behind(self, noise: float) -> float:
        """What is allowed, relative, for what follows noisy parameters that came `noise` apart (relative as well)."""
        return min(_SPREAD * noise, _MOST_NOISE)

    def with_noise(self, noise: float, floor: float = 0.0, natural: float = 0.0) -> Tolerance:
        """The tolerance for what a script prints and leaves in files.

        noise: how far noisy parameters came apart, relative; they are in what is printed and left.
        floor: the largest number in tensors of nothing but noise, absolute; sums of such may be in it, too.
        natural: the natural noise at the end of training, relative.
        """
        spread = max(self.room_behind(noise), FACTOR * natural)
        return replace(
            self,
            allowed=max(self.allowed, spread),
            number=max(self.number, spread),
            floor=min(_SPREAD * floor, _MOST_NOISE),
        )

    def under_autocast(self, dtypes: frozenset[str]) -> Tolerance:
        """The tolerance where both runs asked autocast for these dtypes: rounding to half precision is as coarse as
        that."""
        coarsest = max((_HALVES.get(dtype, 0.0) for dtype in dtypes), default=0.0)
        return replace(self, epsilon=max(self.epsilon, _HALF_ULPS * coarsest / FACTOR)) if coarsest else self


FLOAT64 = Tolerance()
FLOAT32 = Tolerance(dtype="float32", epsilon=2.0**-23, noise=0.0)
