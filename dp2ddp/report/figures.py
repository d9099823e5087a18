"""The charts of one verdict, drawn from its series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dp2ddp.report.bins import Bins, Doubles, bins_of
from dp2ddp.report.charts import (
    Chart,
    Line,
    band,
    curve,
    grid,
    legend_words,
    stacks,
    svg,
    table_of,
    upright,
)
from dp2ddp.report.heat import heat_maps
from dp2ddp.report.scales import SIDE, Linear, Scale, differences, linear, step_ticks
from dp2ddp.verify.series import Series
from dp2ddp.verify.tolerance import FLOAT64
from dp2ddp.verify.verdict import Verdict

_COLUMNS = 360  # of a chart with lines: about one for each two pixels on a screen
_BARS = 120
_TABLE_ROWS = 40


def charts(verdict: Verdict) -> Iterator[Chart]:
    """All that there is something to see in."""
    double, single = verdict.float64.series, verdict.float32.series
    if double is None or not len(double.steps):
        return
    key = f"w{verdict.world}"
    yield _differences(f"{key}-difference", verdict, double, single)
    if not np.isnan(double.losses).all():
        yield _losses(f"{key}-loss", double)
    yield from heat_maps(key, double, FLOAT64.allowed)
    if double.rows.any():
        yield _rows(f"{key}-rows", double)
    if _varies(double):
        yield _rates(f"{key}-rate", double)


def worst(series: Series, count: int) -> Doubles:
    """The largest difference of each step, over all gradients and parameters."""
    both = np.fmax(series.gradients, series.parameters)
    largest = np.fmax.reduce(both, axis=1, initial=np.nan)
    return padded(largest, count)


def padded(values: Doubles, count: int) -> Doubles:
    """With nan for steps that this run did not take."""
    return np.concatenate([values, np.full(max(count - len(values), 0), np.nan)])[:count]


def _differences(key: str, verdict: Verdict, double: Series, single: Series | None) -> Chart:
    steps, allowed = double.steps, FLOAT64.allowed
    bins = bins_of(steps, _COLUMNS)
    named = list(_difference_lines(double, single))
    lines = [Line(name, style, bins.highs(values), bins.highs(values)) for name, style, values in named]
    finite = [values[np.isfinite(values)] for _, _, values in named]
    scale = differences(
        max(float(each.max(initial=0.0)) for each in finite),
        any(np.isinf(values).any() for _, _, values in named),
    )
    parted = verdict.float64.first
    marks = []
    if parted is not None and steps[0] <= parted.step <= steps[-1]:
        column = int(np.searchsorted(steps[bins.starts], parted.step, side="right")) - 1
        marks.append(upright("parted", column, len(bins)))
    title = "Difference at each step"
    summary = _difference_words(verdict, named)
    picture = svg(
        key,
        title,
        summary,
        band("allowed", scale.height(allowed), SIDE),
        grid(scale),
        *marks,
        *(curve(line, scale) for line in lines),
    )
    legend = [*legend_words(lines), ("allowed", f"allowed in float64: up to {allowed:.0e}")]
    legend += [("parted", f"they part at step {parted.step}")] if marks and parted else []
    return _chart(
        key, title, summary, picture, scale, bins, tuple(legend), [(name, values, values) for name, _, values in named],
        "{:.1e}",
        note="Relative, on a logarithmic scale: the largest of all gradients and parameters, of the worst rank. "
        "0: the same bits.",
    )  # fmt: skip


def _difference_lines(double: Series, single: Series | None) -> Iterator[tuple[str, str, Doubles]]:
    count = len(double.steps)
    if single is not None and len(single.steps):
        if single.noise is not None:
            yield "natural noise in float32", "noise32", padded(single.noise, count)
        yield "float32 (shown)", "float32", worst(single, count)
    if double.noise is not None:
        yield "natural noise in float64", "noise64", padded(double.noise, count)
    yield "float64 (judged)", "float64", worst(double, count)


def _difference_words(verdict: Verdict, lines: Sequence[tuple[str, str, Doubles]]) -> str:
    told = [f"{name}: {_largest_words(values)}" for name, _, values in lines]
    first = verdict.float64.first
    parted = f" The runs part at step {first.step}." if first is not None else ""
    return f"Largest relative difference of each step. {'; '.join(told)}.{parted}"


def _largest_words(values: Doubles) -> str:
    if np.isinf(values).any():
        return "something is missing or no number on one side"
    largest = float(np.nanmax(values)) if not np.isnan(values).all() else float("nan")
    return "the same bits in all steps" if largest == 0 else f"at most {largest:.1e}"


def _losses(key: str, series: Series) -> Chart:
    bins = bins_of(series.steps, _COLUMNS)
    named = list(_alike(series.losses))
    lines = [
        Line(name, style, bins.lows(values), bins.highs(values))
        for name, style, values in _shown_losses(named)
    ]
    finite = series.losses[np.isfinite(series.losses)]
    scale = linear(float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf)))
    title = "Loss, both runs over each other"
    ends = [f"{name} from {values[0]:.4g} to {values[-1]:.4g}" for name, _, values in _shown_losses(named)]
    summary = f"Losses that backward was called on. {'; '.join(ends)}."
    picture = svg(key, title, summary, grid(scale), *(curve(line, scale) for line in lines))
    figures = [(name, values, values) for name, _, values in _shown_losses(named)]
    return _chart(key, title, summary, picture, scale, bins, legend_words(lines), figures, "{:.6g}",
                  note="In float64, as passed to backward.")  # fmt: skip


def _alike(losses: Doubles) -> Iterator[tuple[list[int], Doubles]]:
    """Ranks whose losses are the same are one line."""
    groups: dict[bytes, list[int]] = {}
    for rank in range(losses.shape[1] - 1):
        groups.setdefault(losses[:, rank + 1].tobytes(), []).append(rank)
    yield [-1], losses[:, 0]
    yield from ((ranks, losses[:, ranks[0] + 1]) for ranks in groups.values())


def _shown_losses(groups: Sequence[tuple[list[int], Doubles]]) -> Iterator[tuple[str, str, Doubles]]:
    yield "DataParallel", "wide", groups[0][1]
    for index, (ranks, values) in enumerate(groups[1:]):
        every = len(groups) == 2 and len(ranks) > 1
        name = "every rank" if every else f"rank {' and '.join(map(str, ranks))}"
        yield f"DDP, {name}", f"rank{index % 6}", values


def _rows(key: str, series: Series) -> Chart:
    bins = bins_of(series.steps, _BARS)
    odd = _oddest(series, bins)
    parts = series.rows[odd].astype(np.float64)
    most = float(max(parts.sum(axis=1).max(), 1))
    scale = Linear(0.0, most)
    title = "Rows of each rank"
    kinds, counts = np.unique(series.rows, axis=0, return_counts=True)
    order = np.argsort(-counts)
    told = [f"{' + '.join(map(str, kinds[index]))} in {counts[index]} steps" for index in order[:6]]
    summary = f"Rows that each rank worked on: {'; '.join(told)}."
    picture = svg(key, title, summary, grid(scale), stacks(parts, most))
    legend = tuple((f"part{rank % 6}", f"rank {rank}") for rank in range(series.rows.shape[1]))
    columns = [
        (f"rank {rank}", series.rows[:, rank], series.rows[odd][:, rank])
        for rank in range(series.rows.shape[1])
    ]
    return _chart(key, title, summary, picture, scale, bins, legend, columns, "{:.0f}", note=summary)


def _oddest(series: Series, bins: Bins) -> Any:
    """Of each column the step whose rows are the rarest in the run: an odd batch is never lost between others."""
    _, kind, counts = np.unique(series.rows, axis=0, return_inverse=True, return_counts=True)
    rarity = counts[kind.reshape(-1)]
    return np.array([first + int(np.argmin(rarity[first : last + 1])) for first, last in bins.spans()])


def _varies(series: Series) -> bool:
    """A rate that stays as it is needs a sentence and no chart."""
    rates = series.learning_rates[np.isfinite(series.learning_rates)]
    return bool(rates.size and np.ptp(rates) > 0)


def _rates(key: str, series: Series) -> Chart:
    bins = bins_of(series.steps, _COLUMNS)
    rates = series.learning_rates
    named = [("DataParallel", "wide", rates[:, 0]), ("DDP, rank 0", "rank0", rates[:, 1])]
    lines = [Line(name, style, bins.lows(values), bins.highs(values)) for name, style, values in named]
    finite = rates[np.isfinite(rates)]
    scale = linear(float(finite.min()), float(finite.max()))
    title = "Learning rate"
    same = (
        "the same in all steps"
        if np.array_equal(rates[:, 0], rates[:, 1], equal_nan=True)
        else "not the same"
    )
    summary = f"Learning rate of the first group of parameters, from {rates[0, 0]:.4g} to {rates[-1, 0]:.4g}; {same}."
    picture = svg(key, title, summary, grid(scale), *(curve(line, scale) for line in lines))
    figures = [(name, values, values) for name, _, values in named]
    note = f"{same.capitalize()}."
    return _chart(key, title, summary, picture, scale, bins, legend_words(lines), figures, "{:.6g}", note)


def _chart(
    key: str,
    title: str,
    summary: str,
    picture: Any,
    scale: Scale,
    bins: Bins,
    legend: tuple[tuple[str, str], ...],
    figures: Sequence[tuple[str, Any, Any]],
    form: str,
    note: str = "",
) -> Chart:
    """With its figures: fewer columns for the table, all that are drawn for the one who points at them."""
    rough = bins_of(bins.steps, _TABLE_ROWS)
    caption = title if rough.whole else f"{title}: the largest of some steps in each row"
    table = table_of(
        caption, rough, [(name, words(rough.highs(values), form)) for name, values, _ in figures]
    )
    points = {
        "steps": bins.names(),
        "lines": [
            [name, words(bins.highs(values) if len(values) == len(bins.steps) else values, form)]
            for name, _, values in figures
        ],
    }
    ticks = step_ticks(bins.steps.tolist())
    return Chart(key, title, summary, picture, scale.ticks(), ticks, legend, table, points, note)


def words(values: Doubles, form: str) -> list[str]:
    """`-` for what there is not."""
    return ["-" if value != value else "0" if value == 0 else form.format(value) for value in values.tolist()]
