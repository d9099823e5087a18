"""From values to heights in a chart, 0 at its top and 1000 at its bottom; and what stands beside the axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

SIDE = 1000  # a chart is a square of so many units, stretched by the page


@dataclass(frozen=True)
class Tick:
    """A word beside an axis; `place` in per cent from the top or the left."""

    place: float
    label: str


class Scale(Protocol):
    """From values to heights in a chart."""

    def height(self, value: float) -> float: ...
    def ticks(self) -> tuple[Tick, ...]: ...


@dataclass(frozen=True)
class Linear:
    """Evenly from `low` to `high`."""

    low: float
    high: float

    def height(self, value: float) -> float:
        """What is no number, or none that fits, lies at the edge."""
        share = (value - self.low) / (self.high - self.low) if math.isfinite(value) else float(value > 0)
        return SIDE * (1 - min(max(share, 0.0), 1.0))

    def ticks(self) -> tuple[Tick, ...]:
        step = _round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        values = [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return tuple(Tick(self.height(value) / SIDE * 100, f"{value:.10g}") for value in values)


def linear(low: float, high: float) -> Linear:
    """With some air; numbers that are all the same lie in the middle."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return Linear(0.0, 1.0)
    air = (high - low) * 0.06 or abs(high) * 0.5 or 1.0
    return Linear(low - air, high + air)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)


@dataclass(frozen=True)
class Differences:
    """Decades from 1e-17 to `top`; below them a place for 0 (the same bits), above them one for what has no number."""

    top: int  # the exponent
    endless: bool  # whether anything is infinitely far apart

    def height(self, value: float) -> float:
        roof, ground = (120.0 if self.endless else 30.0), 880.0
        if value == 0:
            return 960.0
        if not math.isfinite(value):
            return 45.0
        share = (math.log10(max(value, 1e-300)) + 17) / (self.top + 17)
        return ground - (ground - roof) * min(max(share, 0.0), 1.0)

    def ticks(self) -> tuple[Tick, ...]:
        decades = range(-16, self.top + 1, 4)
        ticks = [Tick(self.height(10.0**decade) / 10, f"1e{decade}" if decade else "1") for decade in decades]
        endless = [Tick(self.height(math.inf) / 10, "\N{INFINITY}")] if self.endless else []
        return (*endless, *reversed(ticks), Tick(96.0, "0"))


def differences(largest: float, endless: bool) -> Differences:
    decade = math.ceil(math.log10(largest)) if largest > 0 else 0
    return Differences(max(0, min(decade, 300)), endless)


def step_ticks(steps: list[int]) -> tuple[Tick, ...]:
    """Round numbers of steps along the bottom."""
    if not steps:
        return ()
    count, distance = len(steps), _round_step(max((steps[-1] - steps[0]) / 5, 1))
    places = [index for index, step in enumerate(steps) if step % max(int(distance), 1) == 0]
    return tuple(Tick((index + 0.5) / count * 100, str(steps[index])) for index in places[:9])
