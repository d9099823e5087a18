"""Line charts as inline SVG: a square of 1000 x 1000 that the page stretches; the words stand beside it, as HTML.

Thousands of steps go into the width of a page: a column stands for some of them, and keeps the largest.

Plotting libraries bring megabytes into a page or into the installation, for one kind of chart.
Lines keep their width however the square is stretched (vector-effect), and words are never stretched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from dp2ddp.comparison.series import Doubles
from dp2ddp.report.result_document import Chart, Row, Table
from dp2ddp.report.scales import SIDE, Scale, step_ticks

COLUMNS = 360  # about one for each two pixels on a screen
TABLE_ROWS = 40


@dataclass(frozen=True)
class Bins:
    """Columns of a chart; `starts` are the indexes of their first steps."""

    steps: npt.NDArray[np.int64]  # the number of each step
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def whole(self) -> bool:
        """Whether each step has a column of its own."""
        return len(self.starts) == len(self.steps)

    def highs(self, values: npt.NDArray[Any]) -> Doubles:
        """The largest value of each column, (columns,) or (columns, n); nan only where there is no other."""
        largest: Doubles = np.fmax.reduceat(values.astype(np.float64), self.starts, axis=0)
        return largest

    def lows(self, values: npt.NDArray[Any]) -> Doubles:
        """The smallest value of each column; nan only where there is no other."""
        smallest: Doubles = np.fmin.reduceat(values.astype(np.float64), self.starts, axis=0)
        return smallest

    def means(self, values: Doubles) -> Doubles:
        """The mean of each column's numbers; nan only where there is none."""
        known = np.isfinite(values)
        with np.errstate(invalid="ignore"):
            sums = np.add.reduceat(np.where(known, values, 0.0), self.starts)
            means: Doubles = sums / np.add.reduceat(known.astype(np.float64), self.starts)
        return np.where(np.isnan(means), self.highs(values), means)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The first and the last index of each column."""
        yield from zip(
            self.starts.tolist(), [*(self.starts[1:] - 1).tolist(), len(self.steps) - 1], strict=True
        )

    def names(self) -> list[str]:
        """`12`, or `12-15` for a column of four steps."""
        pairs = ((int(self.steps[first]), int(self.steps[last])) for first, last in self.spans())
        return [str(first) if first == last else f"{first}\N{EN DASH}{last}" for first, last in pairs]


def bins_of(steps: npt.NDArray[np.int64], most: int) -> Bins:
    """At most so many columns, as even as can be."""
    count = min(len(steps), most)
    return Bins(steps, np.arange(count, dtype=np.int64) * len(steps) // max(count, 1))


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
    # a column shows the largest of its steps; else their mean, in the area that they cover
    peaks: bool = False
    band: Curve | None = None  # what is allowed: everything under it
    mark: tuple[int, str] | None = None  # a step, and what happens there
    words: tuple[str, Sequence[str]] | None = None  # a name, and a word for each step of the last curve


def chart(plot: Plot) -> Chart:
    """The picture and its figures."""
    bins, rough = bins_of(plot.steps, COLUMNS), bins_of(plot.steps, TABLE_ROWS)
    lines = [_columns(curve, bins, plot.peaks) for curve in plot.curves]
    column = _column(plot, bins)
    legend = [(curve.style, curve.name) for curve in plot.curves]
    legend += [(plot.band.style, plot.band.name)] if plot.band else []
    legend += [("parted", plot.mark[1])] if plot.mark and column is not None else []
    points: dict[str, Any] = {"steps": bins.names(), "lines": list(map(list, _texts(plot, bins)))}
    return Chart(
        key=plot.key,
        title=plot.title,
        note=plot.note,
        svg=_svg(plot, list(_drawn(plot, bins, lines, column))),
        heights=plot.scale.ticks(),
        steps=step_ticks(bins.steps.tolist()),
        legend=tuple(legend),
        table=_table(plot, rough),
        points=points if column is None else {**points, "start": column},
    )


@dataclass(frozen=True)
class _Columns:
    """A curve where it goes in each column, and between which values the column's steps lie."""

    style: str
    values: Doubles
    lows: Doubles
    highs: Doubles


def _columns(curve: Curve, bins: Bins, peaks: bool) -> _Columns:
    highs = bins.highs(curve.values)
    if peaks:
        return _Columns(curve.style, highs, highs, highs)
    return _Columns(curve.style, bins.means(curve.values), bins.lows(curve.values), highs)


def _column(plot: Plot, bins: Bins) -> int | None:
    """The column of the marked step, if it is one of these."""
    if plot.mark is None or not plot.steps[0] <= plot.mark[0] <= plot.steps[-1]:
        return None
    return int(np.searchsorted(bins.steps[bins.starts], plot.mark[0], side="right")) - 1


def _texts(plot: Plot, bins: Bins) -> Iterator[tuple[str, list[str]]]:
    """(name, a text for each column)."""
    for curve in plot.curves:
        line = _columns(curve, bins, plot.peaks)
        values = zip(line.values.tolist(), line.lows.tolist(), line.highs.tolist(), strict=True)
        yield curve.name, [_text(plot.form, *each) for each in values]
    if plot.words:
        name, words = plot.words
        sizes = np.nan_to_num(plot.curves[-1].values, nan=-1.0)
        peaks = (first + int(sizes[first : last + 1].argmax()) for first, last in bins.spans())
        yield name, [words[at] or "-" for at in peaks]


def _text(form: str, value: float, low: float, high: float) -> str:
    """With the range, where a column has several values."""
    text = _number(form, value)
    return f"{text} ({_number(form, low)} to {_number(form, high)})" if low < high else text


def _number(form: str, value: float) -> str:
    """`-` for what there is not."""
    return "-" if math.isnan(value) else "0" if value == 0 else form.format(value)


def _table(plot: Plot, bins: Bins) -> Table:
    names, texts = zip(*_texts(plot, bins), strict=True)
    cells = zip(*texts, strict=True)
    rows = tuple(Row(name, each) for name, each in zip(bins.names(), cells, strict=True))
    return Table(plot.title, names, rows, of="step" if bins.whole else "steps")


def _svg(plot: Plot, parts: Sequence[Markup]) -> Markup:
    """A picture with a name and a description."""
    head = Markup(
        '<svg role="img" aria-labelledby="{0}-t {0}-d" viewBox="0 0 {3} {3}" preserveAspectRatio="none">'
        '<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>'
    )
    return head.format(plot.key, plot.title, plot.summary, SIDE) + Markup("").join(parts) + Markup("</svg>")


def _drawn(plot: Plot, bins: Bins, lines: Sequence[_Columns], column: int | None) -> Iterator[Markup]:
    scale, count = plot.scale, len(bins)
    if plot.band:
        yield _path(plot.band.style, _below(bins.highs(plot.band.values), scale))
    yield _path("grid", "".join(f"M0 {_short(tick.place * 10)}h1000" for tick in scale.ticks()))
    if column is not None:
        yield _path("parted", f"M{_across(column, count)} 0V1000")
    for line in lines:
        yield _path(f"area {line.style}", "".join(_spans(line, scale)))
    for line in lines:
        yield _path(f"line {line.style}", "".join(_strokes(line.values, scale)))


def _path(style: str, path: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(style, path) if path else Markup("")


def _strokes(values: Doubles, scale: Scale) -> Iterator[str]:
    """`M` begins after a gap, `L` goes on; `h0` makes a dot of a point that stands alone."""
    drawn = False
    for column, value in enumerate(values.tolist()):
        if not math.isnan(value):
            yield f"{'L' if drawn else 'M'}{_across(column, len(values))} {_short(scale.height(value))}h0"
        drawn = not math.isnan(value)


def _spans(line: _Columns, scale: Scale) -> Iterator[str]:
    """From the lowest to the highest value of each column; nothing where each has one."""
    for column, (low, high) in enumerate(zip(line.lows.tolist(), line.highs.tolist(), strict=True)):
        if low < high:
            across = _across(column, len(line.highs))
            yield f"M{across} {_short(scale.height(low))}V{_short(scale.height(high))}"


def _below(tops: Doubles, scale: Scale) -> str:
    """Everything under a curve, from edge to edge."""
    heights = [_short(scale.height(top)) for top in tops.tolist()]
    path = "".join(f"L{_across(column, len(heights))} {height}" for column, height in enumerate(heights))
    return f"M0 1000V{heights[0]}{path}H1000V1000z"


def _across(column: int, count: int) -> str:
    return _short((column + 0.5) / count * SIDE)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
