"""Line charts as inline SVG: a square of 1000 x 1000 that the page stretches; the words stand beside it, as HTML.

Thousands of steps go into the width of a page: a column stands for some of them, and keeps the largest.

Plotting libraries bring megabytes into a page or into the installation, for one kind of chart.
Lines keep their width however the square is stretched (vector-effect), and words are never stretched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from dp2ddp.comparison.series import Doubles
from dp2ddp.report.result_document import Chart, Tick

COLUMNS = 360  # about one for each two pixels on a screen
SIDE = 1000  # a chart is a square of so many units, 0 at its top


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
class Plot:
    """What is to be drawn."""

    key: str  # unique in the page
    title: str
    summary: str  # what it shows, in words: the chart's description
    note: str
    steps: npt.NDArray[np.int64]
    curves: Sequence[Curve]
    scale: Scale
    form: str  # of a value in words, "{:.1e}"
    band: Curve | None = None  # what is allowed: everything under it
    mark: tuple[int, str] | None = None  # a step, and what happens there
    words: tuple[str, Sequence[str]] | None = None  # a name, and a word for each step of the last curve


@dataclass(frozen=True)
class _Columns:
    """Which steps stand in each column."""

    firsts: npt.NDArray[np.int64]  # indexes
    lasts: list[int]
    names: list[str]  # `12`, or `12-15` for a column of four steps

    @classmethod
    def of(cls, steps: npt.NDArray[np.int64]) -> _Columns:
        """As even as can be."""
        count = min(len(steps), COLUMNS)
        firsts = np.arange(count, dtype=np.int64) * len(steps) // max(count, 1)
        lasts = [*(firsts[1:] - 1).tolist(), len(steps) - 1]
        pairs = zip(steps[firsts].tolist(), steps[lasts].tolist(), strict=True)
        return cls(firsts, lasts, [str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in pairs])

    def largest(self, values: Doubles) -> list[float]:
        """The largest value of each column; nan only where there is no other."""
        largest: list[float] = np.fmax.reduceat(values, self.firsts).tolist()
        return largest

    def words(self, curve: Curve, words: Sequence[str]) -> list[str]:
        """The word of the step that is the largest of its column."""
        sizes, spans = (
            np.nan_to_num(curve.values, nan=-1.0),
            zip(self.firsts.tolist(), self.lasts, strict=True),
        )
        peaks = (first + int(sizes[first : last + 1].argmax()) for first, last in spans)
        return [words[at] or "-" for at in peaks]


def chart(plot: Plot) -> Chart:
    """The picture and its figures."""
    columns, mark = _Columns.of(plot.steps), None
    legend = [(curve.style, curve.name) for curve in (*plot.curves, *filter(None, [plot.band]))]
    lines = [(curve.name, _texts(plot, columns.largest(curve.values))) for curve in plot.curves]
    if plot.words:
        lines.append((plot.words[0], columns.words(plot.curves[-1], plot.words[1])))
    points: dict[str, Any] = {"steps": columns.names, "lines": lines}
    if plot.mark and plot.steps[0] <= plot.mark[0] <= plot.steps[-1]:
        mark = int(np.searchsorted(plot.steps[columns.firsts], plot.mark[0], side="right")) - 1
        legend.append(("parted", plot.mark[1]))
        points["start"] = mark
    return Chart(
        key=plot.key,
        title=plot.title,
        note=plot.note,
        svg=_svg(plot, columns, mark),
        heights=plot.scale.ticks,
        steps=_step_ticks(plot.steps.tolist()),
        legend=tuple(legend),
        points=points,
    )


def _step_ticks(steps: list[int]) -> tuple[Tick, ...]:
    """Round numbers of steps along the bottom."""
    distance = max(int(_round_step(max((steps[-1] - steps[0]) / 5, 1))), 1)
    places = [index for index, step in enumerate(steps) if step % distance == 0]
    return tuple(Tick((index + 0.5) / len(steps) * 100, str(steps[index])) for index in places[:9])


def _texts(plot: Plot, values: Sequence[float]) -> list[str]:
    """`-` for what there is not."""
    return ["-" if math.isnan(value) else plot.form.format(value) if value else "0" for value in values]


def _svg(plot: Plot, columns: _Columns, mark: int | None) -> Markup:
    """A picture with a name and a description."""
    head = Markup(
        '<svg role="img" aria-labelledby="{0}-t {0}-d" viewBox="0 0 {3} {3}" preserveAspectRatio="none">'
        '<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>'
    )
    paths = (
        Markup('<path class="{}" d="{}"/>').format(style, path)
        for style, path in _paths(plot, columns, mark)
        if path
    )
    return head.format(plot.key, plot.title, plot.summary, SIDE) + Markup("").join(paths) + Markup("</svg>")


def _paths(plot: Plot, columns: _Columns, mark: int | None) -> Iterator[tuple[str, str]]:
    """(style, what is drawn), from the back to the front."""
    if plot.band:
        yield plot.band.style, _below(_places(columns.largest(plot.band.values), plot.scale))
    yield "grid", "".join(f"M0 {_short(tick.place * 10)}h1000" for tick in plot.scale.ticks)
    if mark is not None:
        yield "parted", f"M{_short((mark + 0.5) / len(columns.names) * SIDE)} 0V1000"
    for curve in plot.curves:
        places = _places(columns.largest(curve.values), plot.scale)
        yield f"line {curve.style}", "".join(_strokes(places))


def _places(values: Sequence[float], scale: Scale) -> list[str]:
    """`x y` of each column; "" where there is no value."""
    across = ((column + 0.5) / len(values) * SIDE for column in range(len(values)))
    return [
        "" if math.isnan(value) else f"{_short(x)} {_short(scale.height(value))}"
        for x, value in zip(across, values, strict=True)
    ]


def _strokes(places: Sequence[str]) -> Iterator[str]:
    """`M` begins after a gap, `L` goes on; `h0` makes a dot of a point that stands alone."""
    for before, place in zip(["", *places], places, strict=False):
        if place:
            yield f"{'L' if before else 'M'}{place}h0"


def _below(places: Sequence[str]) -> str:
    """Everything under a curve, from edge to edge."""
    return f"M0 1000V{places[0].split()[1]}{''.join(f'L{place}' for place in places)}H1000V1000z"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
