"""Charts as inline SVG: a square of 1000 x 1000 that the page stretches; the words stand beside it, as HTML.

Plotting libraries bring megabytes into a page or into the installation (TOOLS.md section 6), for three kinds of chart.
Lines keep their width however the square is stretched (vector-effect), and words are never stretched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from dp2ddp.report.bins import Bins, Doubles
from dp2ddp.report.scales import SIDE, Scale, Tick


@dataclass(frozen=True)
class Line:
    """A curve: of each column the lowest and the highest value."""

    name: str
    style: str  # a class of page.css: colour, dashes and width
    lows: Doubles
    highs: Doubles


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


def svg(key: str, title: str, summary: str, *parts: Markup, size: tuple[int, int] = (SIDE, SIDE)) -> Markup:
    """A picture with a name and a description."""
    head = Markup(
        '<svg role="img" aria-labelledby="{0}-t {0}-d" viewBox="0 0 {3} {4}" preserveAspectRatio="none">'
        '<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>'
    )
    return head.format(key, title, summary, *size) + Markup("").join(parts) + Markup("</svg>")


def curve(line: Line, scale: Scale) -> Markup:
    """One path; a column with several steps goes down to its lowest and up to its highest."""
    path = "".join(_strokes(line, scale))
    return Markup('<path class="line {}" d="{}"/>').format(line.style, path) if path else Markup("")


def _strokes(line: Line, scale: Scale) -> Iterator[str]:
    """`M` begins after a gap, `L` goes on; `h0` makes a dot of a point that stands alone."""
    drawn = False
    for column, (low, high) in enumerate(zip(line.lows.tolist(), line.highs.tolist(), strict=True)):
        if math.isnan(high):
            drawn = False
            continue
        x, y = across(column, len(line.highs)), _short(scale.height(high))
        yield f"{'L' if drawn else 'M'}{x} {y}h0"
        if low != high:
            yield f"V{_short(scale.height(low))}"
        drawn = True


def across(column: int, count: int) -> str:
    return _short((column + 0.5) / count * SIDE)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def grid(scale: Scale) -> Markup:
    path = "".join(f"M0 {_short(tick.place * 10)}h1000" for tick in scale.ticks())
    return Markup('<path class="grid" d="{}"/>').format(path)


def band(style: str, top: float, bottom: float) -> Markup:
    """A lying stripe, from one height to another."""
    return Markup('<rect class="{}" x="0" y="{}" width="1000" height="{}"/>').format(
        style, _short(top), _short(bottom - top)
    )


def upright(style: str, column: int, count: int) -> Markup:
    """A line across the whole height, at one column."""
    return Markup('<path class="{}" d="M{} 0V1000"/>').format(style, across(column, count))


def stacks(parts: Doubles, most: float) -> Markup:
    """Bars, one part upon the other; (columns, parts)."""
    drawn = []
    width = SIDE / max(len(parts), 1)
    below = parts.cumsum(axis=1) - parts
    for part in range(parts.shape[1]):
        path = "".join(
            f"M{_short(column * width)} {_short(SIDE * (1 - low / most))}v{_short(-SIDE * high / most)}h{_short(width)}"
            f"v{_short(SIDE * high / most)}z"
            for column, (low, high) in enumerate(zip(below[:, part], parts[:, part], strict=True))
            if high
        )
        drawn.append(Markup('<path class="fill part{}" d="{}"/>').format(part % 6, path))
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
    """The line of a legend."""
    return Markup(
        '<svg class="sample" viewBox="0 0 30 10" aria-hidden="true"><path class="line {}" d="M1 5h28"/></svg>'
    ).format(style)


def legend_words(lines: Sequence[Line]) -> tuple[tuple[str, str], ...]:
    return tuple((line.style, line.name) for line in lines)


def table_of(caption: str, bins: Bins, columns: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """A row for each column of the bins."""
    head = ("step" if bins.whole else "steps", *(name for name, _ in columns))
    cells = zip(bins.names(), *(texts for _, texts in columns), strict=True)
    return Table(caption, head, tuple(tuple(row) for row in cells))
