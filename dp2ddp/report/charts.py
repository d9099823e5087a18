"""Line charts as inline SVG: a square of 1000 x 1000 that the page stretches; the words stand beside it, as HTML.

Thousands of steps go into the width of a page: a column stands for some of them, and keeps the largest.

Plotting libraries bring megabytes into a page or into the installation, for one kind of chart.
Lines keep their width however the square is stretched (vector-effect), and words are never stretched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from dp2ddp.comparison.series import Doubles

COLUMNS = 360  # about one for each two pixels on a screen
SIDE = 1000  # a chart is a square of so many units, 0 at its top


@dataclass(frozen=True)
class Tick:
    """A word beside an axis; `place` in per cent from the top or the left."""

    place: float
    label: str


@dataclass(frozen=True)
class Scale:
    """From values to heights in a chart, and which values stand beside it, from the top on."""

    height: Callable[[float], float]
    values: tuple[tuple[float, str], ...]

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """The words beside the chart."""
        return tuple(Tick(self.height(value) / SIDE * 100, label) for value, label in self.values)


def linear(low: float, high: float) -> Scale:
    """Evenly, with some air; numbers that are all the same lie in the middle, and what is no number at the edge."""
    air = (high - low) * 0.06 or abs(high) * 0.5 or 1.0
    is_known = math.isfinite(low) and math.isfinite(high)
    bottom, top = (low - air, high + air) if is_known else (0.0, 1.0)

    def height(value: float) -> float:
        share = (value - bottom) / (top - bottom) if math.isfinite(value) else float(value > 0)
        return SIDE * (1 - min(max(share, 0.0), 1.0))

    step = _round_step((top - bottom) / 4)
    numbers = range(math.ceil(bottom / step - 1e-9), math.floor(top / step + 1e-9) + 1)
    return Scale(height, tuple((number * step, f"{number * step:.10g}") for number in numbers))


def differences(largest: float, endless: bool) -> Scale:
    """Decades from 1e-17 to the largest; below them a place for 0 (the same bits), and above them, where anything is
    `endless`, one for what has no number."""
    top = max(0, min(math.ceil(math.log10(largest)) if largest > 0 else 0, 300))
    roof, ground = (120.0 if endless else 30.0), 880.0

    def height(value: float) -> float:
        if value == 0 or not math.isfinite(value):
            return 45.0 if value else 960.0
        share = (math.log10(max(value, 1e-300)) + 17) / (top + 17)
        return ground - (ground - roof) * min(max(share, 0.0), 1.0)

    decades = [(10.0**decade, f"1e{decade}" if decade else "1") for decade in range(-16, top + 1, 4)]
    beyond = [(math.inf, "\N{INFINITY}")] * endless
    return Scale(height, (*beyond, *reversed(decades), (0.0, "0")))


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)


@dataclass(frozen=True)
class Curve:
    """A figure for each step."""

    name: str
    style: str  # a class of page.css: colour, dashes and width
    values: Doubles


@dataclass(frozen=True)
class Chart:
    """What is to be drawn, and everything that a page says about it."""

    key: str  # unique in the page
    title: str
    summary: str  # what it shows, in words: the picture's description
    note: str
    steps: npt.NDArray[np.int64]
    curves: Sequence[Curve]
    scale: Scale
    form: str  # of a value in words, "{:.1e}"
    band: Curve | None = None  # what is allowed: everything under it
    mark: tuple[int, str] | None = None  # a step, and what happens there
    words: tuple[str, Sequence[str]] | None = None  # a name, and a word for each step of the last curve

    @cached_property
    def columns(self) -> list[slice]:
        """The steps of each column, as even as can be."""
        count = min(len(self.steps), COLUMNS)
        return [slice(*edges) for edges in pairwise(at * len(self.steps) // count for at in range(count + 1))]

    @cached_property
    def marked(self) -> int | None:
        """The column of the step with a mark."""
        if not self.mark or not self.steps[0] <= self.mark[0] <= self.steps[-1]:
            return None
        return sum(bool(self.steps[column.start] <= self.mark[0]) for column in self.columns) - 1

    @property
    def legend(self) -> Iterator[tuple[str, str]]:
        """(style, words)"""
        yield from ((curve.style, curve.name) for curve in (*self.curves, *filter(None, [self.band])))
        if self.mark and self.marked is not None:
            yield "parted", self.mark[1]

    @property
    def points(self) -> dict[str, Any]:
        """What page.js shows of the column pointed at; `-` for what there is not."""
        ends = ((self.steps[each.start], self.steps[each.stop - 1]) for each in self.columns)
        lines = [(curve.name, [*map(self._text, self._largest(curve))]) for curve in self.curves]
        if self.words:
            sizes = np.nan_to_num(self.curves[-1].values, nan=-1.0)
            peaks = (each.start + int(sizes[each].argmax()) for each in self.columns)
            lines.append((self.words[0], [self.words[1][at] or "-" for at in peaks]))
        start = {} if self.marked is None else {"start": self.marked}
        names = [str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in ends]
        return {"steps": names, "lines": lines, **start}

    def _text(self, value: float) -> str:
        return "-" if math.isnan(value) else self.form.format(value) if value else "0"

    def _largest(self, curve: Curve) -> list[float]:
        """The largest value of each column; nan only where there is no other."""
        return [float(np.fmax.reduce(curve.values[column])) for column in self.columns]

    @property
    def step_ticks(self) -> Iterator[Tick]:
        """Round numbers of steps along the bottom."""
        steps = self.steps.tolist()
        distance = max(int(_round_step(max((steps[-1] - steps[0]) / 5, 1))), 1)
        places = [index for index, step in enumerate(steps) if step % distance == 0]
        return (Tick((index + 0.5) / len(steps) * 100, str(steps[index])) for index in places[:9])

    @property
    def svg(self) -> Markup:
        """A picture with a name and a description."""
        head = Markup(
            '<svg role="img" aria-labelledby="{0}-t {0}-d" viewBox="0 0 {3} {3}" preserveAspectRatio="none">'
            '<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>'
        )
        path = Markup('<path class="{}" d="{}"/>')
        paths = (path.format(style, drawn) for style, drawn in self._paths() if drawn)
        return (
            head.format(self.key, self.title, self.summary, SIDE) + Markup("").join(paths) + Markup("</svg>")
        )

    def _paths(self) -> Iterator[tuple[str, str]]:
        """(style, what is drawn), from the back to the front."""
        if self.band:  # everything under it, from edge to edge
            places = self._places(self.band)
            area = "".join(f"L{place}" for place in places)
            yield self.band.style, f"M0 1000V{places[0].split()[1]}{area}H1000V1000z"
        yield "grid", "".join(f"M0 {_short(tick.place * 10)}h1000" for tick in self.scale.ticks)
        if self.marked is not None:
            yield "parted", f"M{_short(self._across(self.marked))} 0V1000"
        for curve in self.curves:
            yield f"line {curve.style}", "".join(_strokes(self._places(curve)))

    def _places(self, curve: Curve) -> list[str]:
        """`x y` of each column; "" where there is no value."""
        return [
            "" if math.isnan(value) else f"{_short(self._across(column))} {_short(self.scale.height(value))}"
            for column, value in enumerate(self._largest(curve))
        ]

    def _across(self, column: int) -> float:
        return (column + 0.5) / len(self.columns) * SIDE


def _strokes(places: Sequence[str]) -> Iterator[str]:
    """`M` begins after a gap, `L` goes on; `h0` makes a dot of a point that stands alone."""
    for before, place in zip(["", *places], places, strict=False):
        if place:
            yield f"{'L' if before else 'M'}{place}h0"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
