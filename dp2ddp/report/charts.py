"""The figures of every step in one verdict: how far the runs are apart and their losses as charts, a table, and CSV.

A chart is inline SVG: a square of 1000 x 1000 that the page stretches; the words stand beside it, as HTML. Lines keep
their width however it is stretched (vector-effect). Thousands of steps go into the width of a page: a column stands for
some of them, and keeps the largest. Plotting libraries bring megabytes into a page or into the installation.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.series import Doubles, Peak, Series, worst
from dp2ddp.comparison.tolerance import FACTOR, FLOAT64
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.result_document import Attachment, Block, Paragraph, Row, Table

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


# ---- the figures of a verdict

_MOST_PARAMETERS = 40


def step_figures(verdict: Verdict) -> Iterator[Block]:
    """All that there is something to see in; nothing of a script that takes no step."""
    series, key = verdict.float64.series, f"w{verdict.world}"
    if series is None or not len(series.steps):
        return
    yield _differences(f"{key}-difference", verdict, series)
    if not np.isnan(series.losses).all():
        yield _losses(f"{key}-loss", series)
    if apart := series.apart:
        yield Table(
            f"Parameters that come apart in float64: {len(apart)} of {len(series.names)}",
            ("gradient, at most", "at step", "value, at most", "at step"),
            tuple(
                Row(each.name, (*_cells(each.gradient), *_cells(each.parameter)))
                for each in apart[:_MOST_PARAMETERS]
            ),
            of="parameter",
        )
    yield from _rates(series.learning_rates)
    yield Attachment("All steps as CSV", f"steps-on-{verdict.world}.csv", _csv(verdict, series))


def _cells(peak: Peak | None) -> tuple[str, str]:
    return (f"{peak.size:.1e}", str(peak.step)) if peak else ("the same bits", "")


def _rates(rates: Doubles) -> Iterator[Paragraph]:
    """The learning rates in a sentence, of which the CSV has each."""
    known = rates[np.isfinite(rates)]
    if known.size:
        low, high = known.min(), known.max()
        values = f"{low:.6g} in all steps" if low == high else f"{low:.6g} to {high:.6g}"
        same = np.array_equal(rates[:, 0], rates[:, 1], equal_nan=True)
        text = f"Learning rate: {values}, {'the same' if same else 'not the same'} in both runs."
        yield Paragraph(text, is_remark=True)


def _padded(values: Doubles, count: int) -> Doubles:
    """With nan for steps that this run did not take."""
    return np.concatenate([values, np.full(max(count - len(values), 0), np.nan)])[:count]


def _differences(key: str, verdict: Verdict, series: Series) -> Chart:
    """The largest relative difference at each step, beside the natural noise and what is allowed."""
    sizes, limits = _nearest_limits(verdict.float64, series)
    curves = list(_difference_curves(series, sizes, verdict))
    first = verdict.float64.first
    parted = f" The runs part at step {first.step}." if first is not None else ""
    texts = "; ".join(f"{curve.name}: {_largest(curve.values)}" for curve in curves)
    values = np.concatenate([curve.values for curve in curves])
    largest = float(values[np.isfinite(values)].max(initial=0.0))
    return Chart(
        key=key,
        title="Difference at each step",
        summary=f"Largest relative difference of each step. {texts}.{parted}",
        note=(
            "Relative, on a logarithmic scale: the largest of all gradients and parameters, of the worst rank; "
            "0 stands for the same bits."
        ),
        steps=series.steps,
        curves=curves,
        scale=differences(largest, endless=bool(np.isinf(values).any())),
        form="{:.1e}",
        band=Curve(f"allowed in float64: {FACTOR:g} times the natural noise", "allowed", limits),
        mark=(first.step, f"they part at step {first.step}") if first is not None else None,
        words=("furthest", series.furthest),
    )


def _nearest_limits(comparison: Comparison, series: Series) -> tuple[Doubles, Doubles]:
    """For each step the difference, of gradients or parameters, that is nearest to its limit, or furthest beyond it;
    and that limit (comparison/tolerance.py): where no noise was measured it is one ulp."""
    natural, count = comparison.natural, len(series.steps)
    sizes = np.stack([worst(values) for values in (series.gradients, series.parameters)])
    limits = np.full((2, count), FACTOR * FLOAT64.epsilon)
    if natural is not None:
        kinds = ("gradient", "parameter")
        limits = np.array([[natural.allowed(kind, index) for index in range(count)] for kind in kinds])
    nearest = np.nan_to_num(sizes / limits, nan=-1.0, posinf=np.inf).argmax(axis=0)
    return sizes[nearest, range(count)], limits[nearest, range(count)]


def _difference_curves(double: Series, sizes: Doubles, verdict: Verdict) -> Iterator[Curve]:
    count, single = len(double.steps), verdict.float32.series if verdict.float32 else None
    if single is not None and len(single.steps):
        if single.noise is not None:
            yield Curve("natural noise in float32", "noise32", _padded(single.noise, count))
        yield Curve("float32 (shown)", "float32", _worst(single, count))
    if double.noise is not None:
        yield Curve("natural noise in float64", "noise64", _padded(double.noise, count))
    if verdict.aligned is not None and verdict.aligned.comparison.series is not None:
        aligned = _worst(verdict.aligned.comparison.series, count)
        yield Curve("float64, with DataParallel's random numbers", "aligned64", aligned)
    yield Curve("float64 (judged)", "float64", sizes)


def _worst(series: Series, count: int) -> Doubles:
    return _padded(worst(np.fmax(series.gradients, series.parameters)), count)


def _largest(values: Doubles) -> str:
    if np.isnan(values).all():
        return "nothing to compare"
    if np.isinf(values).any():
        return "something is missing or no number on one side"
    largest = float(np.nanmax(values))
    return "the same bits in all steps" if largest == 0 else f"at most {largest:.1e}"


def _losses(key: str, series: Series) -> Chart:
    """The losses of both runs over each other."""
    curves = list(_loss_curves(series.losses))
    ends = "; ".join(f"{curve.name} from {curve.values[0]:.4g} to {curve.values[-1]:.4g}" for curve in curves)
    note = "In float64, as passed to backward. "
    if len(series.steps) > COLUMNS:
        note += "Each point is the largest of some steps."
    summary = f"Losses that backward was called on. {ends}."
    finite = series.losses[np.isfinite(series.losses)]
    scale = linear(float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf)))
    title = "Loss, both runs over each other"
    return Chart(key, title, summary, note, series.steps, curves, scale, "{:.6g}")


def _loss_curves(losses: Doubles) -> Iterator[Curve]:
    """Ranks whose losses are the same are one line."""
    yield Curve("DataParallel", "wide", losses[:, 0])
    groups: dict[bytes, list[int]] = {}
    for rank in range(losses.shape[1] - 1):
        groups.setdefault(losses[:, rank + 1].tobytes(), []).append(rank)
    for index, ranks in enumerate(groups.values()):
        every = len(groups) == 1 and len(ranks) > 1
        name = "every rank" if every else f"rank {' and '.join(map(str, ranks))}"
        yield Curve(f"DDP, {name}", f"rank{index % 6}", losses[:, ranks[0] + 1])


# ---- what a chart draws of thousands of steps in columns, whole


def _csv(verdict: Verdict, series: Series) -> str:
    columns = dict(_columns(series, verdict.float32.series if verdict.float32 else None))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return file.getvalue()


def _columns(double: Series, single: Series | None) -> Iterator[tuple[str, list[str]]]:
    count, world = len(double.steps), double.rows.shape[1]
    yield "step", [str(step) for step in double.steps]
    yield "loss DataParallel", _words(double.losses[:, 0])
    yield from ((f"loss rank {rank}", _words(double.losses[:, rank + 1])) for rank in range(world))
    for group in range(double.learning_rates.shape[2]):
        of = f", group {group}" if group else ""
        for side, who in enumerate(("DataParallel", "rank 0")):
            yield f"learning rate {who}{of}", _words(double.learning_rates[:, side, group])
    yield from ((f"rows rank {rank}", [str(rows) for rows in double.rows[:, rank]]) for rank in range(world))
    for label, series in (("float64", double), ("float32", single)):
        if series is not None:
            for kind, values in (("gradient", series.gradients), ("parameter", series.parameters)):
                yield f"{label} {kind} difference", _words(_padded(worst(values), count), 3)
            if series.noise is not None:
                yield f"{label} natural noise", _words(_padded(series.noise, count), 3)
    yield "furthest gradient in float64", double.furthest


def _words(values: Doubles, digits: int = 7) -> list[str]:
    return ["" if value != value else f"{value:.{digits}g}" for value in values.tolist()]
