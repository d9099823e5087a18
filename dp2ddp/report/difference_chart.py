"""How far the runs are apart at each step, in float64 and float32, beside the natural noise and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.bins import Bins, Doubles, bins_of
from dp2ddp.report.charts import (
    COLUMNS,
    TABLE_ROWS,
    Chart,
    below,
    curve,
    finished,
    grid,
    legend_words,
    peaks,
    svg,
    upright,
)
from dp2ddp.report.limits import nearest_limits, worst
from dp2ddp.report.scales import Differences, differences

_TITLE = "Difference at each step"
_NOTE = (
    "Relative, on a logarithmic scale: the largest of all gradients and parameters, of the worst rank; "
    "0 stands for the same bits."
)

_Named = Sequence[tuple[str, str, Doubles]]  # name, style, a figure for each step


def difference_chart(key: str, verdict: Verdict, series: Series) -> Chart:
    """The chart of the largest relative difference at each step."""
    nearest = nearest_limits(verdict.float64, series)
    named = list(_lines(series, nearest.sizes, verdict))
    bins = bins_of(series.steps, COLUMNS)
    lines = [peaks(*each, bins) for each in named]
    scale, parted = _scale(named), _parted(verdict, series, bins)
    picture = svg(
        key, _TITLE, summary := _summary(verdict, named),
        below("allowed", bins.highs(nearest.limits), scale), grid(scale),
        *(upright("parted", column, len(bins)) for column in parted),
        *(curve(line, scale) for line in lines),
    )  # fmt: skip
    legend = [*legend_words(lines), ("allowed", f"allowed in float64: {FACTOR:g} times the natural noise")]
    if parted and verdict.float64.first:
        legend.append(("parted", f"they part at step {verdict.float64.first.step}"))
    rough = bins_of(series.steps, TABLE_ROWS)
    rows = [peaks(*each, rough) for each in named]
    made = finished(
        key, _TITLE, summary, _NOTE, picture, scale, tuple(legend), (bins, lines), (rough, rows), "{:.1e}"
    )
    return made.starting_at(parted[0]) if parted else made


def _worst(series: Series, count: int) -> Doubles:
    return padded(worst(np.fmax(series.gradients, series.parameters)), count)


def padded(values: Doubles, count: int) -> Doubles:
    """With nan for steps that this run did not take."""
    return np.concatenate([values, np.full(max(count - len(values), 0), np.nan)])[:count]


def _lines(double: Series, sizes: Doubles, verdict: Verdict) -> Iterator[tuple[str, str, Doubles]]:
    count, single = len(double.steps), verdict.float32.series if verdict.float32 else None
    if single is not None and len(single.steps):
        if single.noise is not None:
            yield "natural noise in float32", "noise32", padded(single.noise, count)
        yield "float32 (shown)", "float32", _worst(single, count)
    if double.noise is not None:
        yield "natural noise in float64", "noise64", padded(double.noise, count)
    if verdict.aligned is not None and verdict.aligned.comparison.series is not None:
        yield (
            "float64, with DataParallel's random numbers",
            "aligned64",
            _worst(verdict.aligned.comparison.series, count),
        )
    yield "float64 (judged)", "float64", sizes


def _scale(named: _Named) -> Differences:
    finite = [values[np.isfinite(values)] for _, _, values in named]
    endless = any(np.isinf(values).any() for _, _, values in named)
    return differences(max(float(each.max(initial=0.0)) for each in finite), endless)


def _parted(verdict: Verdict, series: Series, bins: Bins) -> list[int]:
    """The column of the first difference, if it is one of these steps."""
    first = verdict.float64.first
    if first is None or not series.steps[0] <= first.step <= series.steps[-1]:
        return []
    return [int(np.searchsorted(series.steps[bins.starts], first.step, side="right")) - 1]


def _summary(verdict: Verdict, named: _Named) -> str:
    texts = "; ".join(f"{name}: {_largest(values)}" for name, _, values in named)
    first = verdict.float64.first
    parted = f" The runs part at step {first.step}." if first is not None else ""
    return f"Largest relative difference of each step. {texts}.{parted}"


def _largest(values: Doubles) -> str:
    if np.isnan(values).all():
        return "nothing to compare"
    if np.isinf(values).any():
        return "something is missing or no number on one side"
    largest = float(np.nanmax(values))
    return "the same bits in all steps" if largest == 0 else f"at most {largest:.1e}"
