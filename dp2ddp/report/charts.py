"""Charts as inline SVG: a square of 1000 x 1000 that the page stretches; the words stand beside it, as HTML.

Plotting libraries bring megabytes into a page or into the installation, for three kinds of chart.
Lines keep their width however the square is stretched (vector-effect), and words are never stretched.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from dp2ddp.report.bins import Bins, Doubles
from dp2ddp.report.scales import SIDE, Scale, Tick, step_ticks

COLUMNS = 360  # of a chart with lines: about one for each two pixels on a screen
TABLE_ROWS = 40
_RIMS = 60  # bars that are told apart by a line between them


@dataclass(frozen=True)
class ChartLine:
    """A curve: where it goes in each column, and between which values its steps lie."""

    name: str
    style: str  # a class of page.css: colour, dashes and width
    values: Doubles
    lows: Doubles
    highs: Doubles

    def words(self, form: str) -> list[str]:
        """The value of each column as text; with the range, where a column has several values."""
        each = zip(self.values.tolist(), self.lows.tolist(), self.highs.tolist(), strict=True)
        return [
            _word(value, form)
            if not low < high
            else f"{_word(value, form)} ({_word(low, form)} to {_word(high, form)})"
            for value, low, high in each
        ]


def peaks(name: str, style: str, values: Doubles, bins: Bins) -> ChartLine:
    """The largest value of each column."""
    highs = bins.highs(values)
    return ChartLine(name, style, highs, highs, highs)


def means(name: str, style: str, values: Doubles, bins: Bins) -> ChartLine:
    """The mean of each column, in the area that all its steps lie in."""
    return ChartLine(name, style, bins.means(values), bins.lows(values), bins.highs(values))


def _word(value: float, form: str) -> str:
    """`-` for what there is not."""
    return "-" if math.isnan(value) else "0" if value == 0 else form.format(value)


@dataclass(frozen=True)
class Table:
    """The figures behind a chart, for those who cannot see it, or want to know."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chart:
    """Everything that the page says about one chart."""

    key: str  # unique in the page
    title: str
    summary: str  # what it shows, in words: the chart's description
    svg: Markup
    heights: tuple[Tick, ...]
    steps: tuple[Tick, ...]
    legend: tuple[tuple[str, str], ...]  # (style, words)
    table: Table
    points: dict[str, Any] = field(default_factory=dict)  # what page.js shows of the column pointed at
    note: str = ""
    kind: str = "lines"
    rows: tuple[Tick, ...] = ()  # names of a heat map's rows
    axis: str = "step"  # what lies along the bottom

    def starting_at(self, column: int) -> Chart:
        """Whose figures are the first to be shown."""
        return dataclasses.replace(self, points={**self.points, "start": column})


def svg(key: str, title: str, summary: str, *parts: Markup, size: tuple[int, int] = (SIDE, SIDE)) -> Markup:
    """A picture with a name and a description."""
    head = Markup(
        '<svg role="img" aria-labelledby="{0}-t {0}-d" viewBox="0 0 {3} {4}" preserveAspectRatio="none">'
        '<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>'
    )
    return head.format(key, title, summary, *size) + Markup("").join(parts) + Markup("</svg>")


def curve(line: ChartLine, scale: Scale) -> Markup:
    """One path."""
    path = "".join(_strokes(line.values, scale))
    return Markup('<path class="line {}" d="{}"/>').format(line.style, path) if path else Markup("")


def _strokes(values: Doubles, scale: Scale) -> Iterator[str]:
    """`M` begins after a gap, `L` goes on; `h0` makes a dot of a point that stands alone."""
    drawn = False
    for column, value in enumerate(values.tolist()):
        if not math.isnan(value):
            yield f"{'L' if drawn else 'M'}{across(column, len(values))} {_short(scale.height(value))}h0"
        drawn = not math.isnan(value)


def area(line: ChartLine, scale: Scale) -> Markup:
    """From the lowest to the highest value of each column; nothing where each has one."""
    path = "".join(
        f"M{across(column, len(line.highs))} {_short(scale.height(low))}V{_short(scale.height(high))}"
        for column, (low, high) in enumerate(zip(line.lows.tolist(), line.highs.tolist(), strict=True))
        if low < high
    )
    return Markup('<path class="area {}" d="{}"/>').format(line.style, path) if path else Markup("")


def across(column: int, count: int) -> str:
    return _short((column + 0.5) / count * SIDE)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def grid(scale: Scale) -> Markup:
    path = "".join(f"M0 {_short(tick.place * 10)}h1000" for tick in scale.ticks())
    return Markup('<path class="grid" d="{}"/>').format(path)


def below(style: str, tops: Doubles, scale: Scale) -> Markup:
    """Everything under a curve, from edge to edge."""
    heights = [_short(scale.height(top)) for top in tops.tolist()]
    path = "".join(f"L{across(column, len(heights))} {height}" for column, height in enumerate(heights))
    return Markup('<path class="{}" d="M0 1000V{}{}H1000V1000z"/>').format(style, heights[0], path)


def upright(style: str, column: int, count: int) -> Markup:
    """A line across the whole height, at one column."""
    return Markup('<path class="{}" d="M{} 0V1000"/>').format(style, across(column, count))


def stacks(parts: Doubles, most: float) -> Markup:
    """Bars, one part upon the other; (columns, parts)."""
    drawn = []
    width = SIDE / max(len(parts), 1)
    rim = " rim" if len(parts) <= _RIMS else ""
    below = parts.cumsum(axis=1) - parts
    for part in range(parts.shape[1]):
        path = "".join(
            f"M{_short(column * width)} {_short(SIDE * (1 - low / most))}v{_short(-SIDE * high / most)}h{_short(width)}"
            f"v{_short(SIDE * high / most)}z"
            for column, (low, high) in enumerate(zip(below[:, part], parts[:, part], strict=True))
            if high
        )
        drawn.append(Markup('<path class="fill part{}{}" d="{}"/>').format(part % 6, rim, path))
    return Markup("").join(drawn)


def mosaic(levels: Sequence[str]) -> Markup:
    """A heat map in units of its cells: a text for each row, a digit for each column; 0 is not drawn.

    Cells of one level that touch are one stroke, one unit wide.
    """
    paths: dict[str, list[str]] = {}
    for row, text in enumerate(levels):
        for level, start, length in _runs(text):
            if level != "0":
                paths.setdefault(level, []).append(f"M{start} {row}.5h{length}")
    drawn = (
        Markup('<path class="cell level{}" d="{}"/>').format(level, "".join(path))
        for level, path in sorted(paths.items())
    )
    return Markup("").join(drawn)


def _runs(text: str) -> Iterator[tuple[str, int, int]]:
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or text[end] != text[start]:
            yield text[start], start, end - start
            start = end


def sample(style: str) -> Markup:
    """The line of a legend; a dot, where the chart has dots."""
    path = "M15 5h0" if style == "other" else "M1 5h28"
    return Markup(
        '<svg class="sample" viewBox="0 0 30 10" aria-hidden="true"><path class="line {}" d="{}"/></svg>'
    ).format(style, path)


def legend_words(lines: Sequence[ChartLine]) -> tuple[tuple[str, str], ...]:
    return tuple((line.style, line.name) for line in lines)


def dots(style: str, points: Sequence[tuple[int, float]], count: int) -> Markup:
    """(column, height) each."""
    path = "".join(f"M{across(column, count)} {_short(height)}h0" for column, height in points)
    return Markup('<path class="{}" d="{}"/>').format(style, path)


def table_of(caption: str, bins: Bins, columns: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """A row for each column of the bins."""
    head = ("step" if bins.whole else "steps", *(name for name, _ in columns))
    cells = zip(bins.names(), *(texts for _, texts in columns), strict=True)
    return Table(caption, head, tuple(tuple(row) for row in cells))


def finished(
    key: str,
    title: str,
    summary: str,
    note: str,
    picture: Markup,
    scale: Scale,
    legend: tuple[tuple[str, str], ...],
    drawn: tuple[Bins, Sequence[ChartLine]],
    in_table: tuple[Bins, Sequence[ChartLine]],
    form: str,
    kind: str = "lines",
) -> Chart:
    """A chart with lines, and its figures: all that are `drawn` for who points at them, `told` ones in a table."""
    bins, lines = drawn
    points = {"steps": bins.names(), "lines": [[line.name, line.words(form)] for line in lines]}
    table = table_of(title, in_table[0], [(line.name, line.words(form)) for line in in_table[1]])
    steps = step_ticks(bins.steps.tolist())
    return Chart(key, title, summary, picture, scale.ticks(), steps, legend, table, points, note, kind)
