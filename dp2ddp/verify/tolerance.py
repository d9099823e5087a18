"""How far apart two runs may be, and where the numbers come from.

float64. Two runs that do the same sums in another order differ by rounding, 1e-16 relative, times what training makes
of it. Measured (CODEBASES.md part F: 15 steps of an MLP with BatchNorm at world 3, uneven chunks): 1.5e-13 at most;
plain DDP, a real fault, 0.19 at its first step. 1e-10 lies a thousand times above the one and a billion times below
the other. float32 is shown, never judged: two right runs of a BatchNorm net at world 3 are 4e-2 apart after 50 steps
(SEMANTICS.md 3.3).

Noise. A bias in front of BatchNorm has gradient 0; what is measured is rounding (6e-16 where others are 1). Adam
divides rounding by rounding and takes a full step in a random direction (CODEBASES.md part F: 7e-8 in one parameter,
gradients equal to 8e-15). The model's function does not depend on such an element, so its value is not held against
the run: its gradients go on being compared, and the report says how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_SPREAD = 10.0  # a running mean behind a noisy bias follows it, and so does what evaluation prints
_MOST_NOISE = (
    1e-5  # Adam's steps in float64 are below (lr * 6e-16 / eps); beyond it a difference is a difference
)


@dataclass(frozen=True)
class Tolerance:
    """Differences are relative: to the step's largest gradient, and to a parameter tensor's largest value."""

    allowed: float = 1e-10
    noise: float = 1e-12  # a gradient this much below the step's largest one is rounding
    number: float = 1e-9  # printed numbers; a log shows rounding in its last digits
    floor: float = 0.0  # absolute: a momentum, or a bias begun at 0, that holds nothing but rounding

    def with_noise(self, noise: float, floor: float = 0.0) -> Tolerance:
        """For what a script prints and leaves: it holds noisy parameters, which came `noise` apart.

        And tensors of nothing but noise, whose numbers are not larger than `floor`, or sums of such.
        """
        spread = min(_SPREAD * noise, _MOST_NOISE)
        return replace(
            self,
            allowed=max(self.allowed, spread),
            number=max(self.number, spread),
            floor=min(_SPREAD * floor, _MOST_NOISE),
        )


FLOAT64 = Tolerance()
FLOAT32 = Tolerance(allowed=float("inf"))  # every step is looked at, none is judged
