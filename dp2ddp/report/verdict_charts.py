"""The charts of one verdict: how far the runs are apart at each step, and their losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.series import Doubles, Series, worst
from dp2ddp.comparison.tolerance import FACTOR, FLOAT64
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.charts import COLUMNS, Curve, Plot, chart
from dp2ddp.report.result_document import Chart
from dp2ddp.report.scales import Differences, differences, linear


def charts(verdict: Verdict) -> Iterator[Chart]:
    """All that there is something to see in."""
    series = verdict.float64.series
    if series is None or not len(series.steps):
        return
    key = f"w{verdict.world}"
    yield chart(_differences(f"{key}-difference", verdict, series))
    if not np.isnan(series.losses).all():
        yield chart(_losses(f"{key}-loss", series))


def rates_text(verdict: Verdict) -> str:
    """The learning rates in a sentence, of which the CSV has each; "" where there are none."""
    rates = np.zeros(0) if verdict.float64.series is None else verdict.float64.series.learning_rates
    known = rates[np.isfinite(rates)]
    if not known.size:
        return ""
    low, high = known.min(), known.max()
    values = f"{low:.6g} in all steps" if low == high else f"{low:.6g} to {high:.6g}"
    same = np.array_equal(rates[:, 0], rates[:, 1], equal_nan=True)
    return f"Learning rate: {values}, {'the same' if same else 'not the same'} in both runs."


def _differences(key: str, verdict: Verdict, series: Series) -> Plot:
    """The largest relative difference at each step, beside the natural noise and what is allowed."""
    sizes, limits = _nearest_limits(verdict.float64, series)
    curves = list(_difference_curves(series, sizes, verdict))
    first = verdict.float64.first
    parted = f" The runs part at step {first.step}." if first is not None else ""
    texts = "; ".join(f"{curve.name}: {_largest(curve.values)}" for curve in curves)
    return Plot(
        key=key,
        title="Difference at each step",
        summary=f"Largest relative difference of each step. {texts}.{parted}",
        note=(
            "Relative, on a logarithmic scale: the largest of all gradients and parameters, of the worst rank; "
            "0 stands for the same bits."
        ),
        steps=series.steps,
        curves=curves,
        scale=_scale(curves),
        form="{:.1e}",
        peaks=True,
        band=Curve(f"allowed in float64: {FACTOR:g} times the natural noise", "allowed", limits),
        mark=(first.step, f"they part at step {first.step}") if first is not None else None,
        words=("furthest", series.furthest),
    )


def _nearest_limits(comparison: Comparison, series: Series) -> tuple[Doubles, Doubles]:
    """For each step the difference, of gradients or parameters, that is nearest to its limit, or furthest beyond it;
    and that limit."""
    sizes = [worst(values) for values in (series.gradients, series.parameters)]
    allowed = [_limits(comparison, kind, len(series.steps)) for kind in ("gradient", "parameter")]
    gradient, parameter = (
        np.nan_to_num(size / limit, nan=-1.0, posinf=np.inf)
        for size, limit in zip(sizes, allowed, strict=True)
    )
    second = parameter > gradient
    return np.where(second, sizes[1], sizes[0]), np.where(second, allowed[1], allowed[0])


def _limits(comparison: Comparison, kind: str, count: int) -> Doubles:
    """What is allowed at each step, relative (comparison/tolerance.py): where no noise was measured it is one ulp."""
    if comparison.natural is None:
        return np.full(count, FACTOR * FLOAT64.epsilon)
    return np.array([comparison.natural.allowed(kind, index) for index in range(count)])


def _difference_curves(double: Series, sizes: Doubles, verdict: Verdict) -> Iterator[Curve]:
    count, single = len(double.steps), verdict.float32.series if verdict.float32 else None
    if single is not None and len(single.steps):
        if single.noise is not None:
            yield Curve("natural noise in float32", "noise32", padded(single.noise, count))
        yield Curve("float32 (shown)", "float32", _worst(single, count))
    if double.noise is not None:
        yield Curve("natural noise in float64", "noise64", padded(double.noise, count))
    if verdict.aligned is not None and verdict.aligned.comparison.series is not None:
        aligned = _worst(verdict.aligned.comparison.series, count)
        yield Curve("float64, with DataParallel's random numbers", "aligned64", aligned)
    yield Curve("float64 (judged)", "float64", sizes)


def _worst(series: Series, count: int) -> Doubles:
    return padded(worst(np.fmax(series.gradients, series.parameters)), count)


def padded(values: Doubles, count: int) -> Doubles:
    """With nan for steps that this run did not take."""
    return np.concatenate([values, np.full(max(count - len(values), 0), np.nan)])[:count]


def _scale(curves: Sequence[Curve]) -> Differences:
    finite = [curve.values[np.isfinite(curve.values)] for curve in curves]
    endless = any(np.isinf(curve.values).any() for curve in curves)
    return differences(max(float(each.max(initial=0.0)) for each in finite), endless)


def _largest(values: Doubles) -> str:
    if np.isnan(values).all():
        return "nothing to compare"
    if np.isinf(values).any():
        return "something is missing or no number on one side"
    largest = float(np.nanmax(values))
    return "the same bits in all steps" if largest == 0 else f"at most {largest:.1e}"


def _losses(key: str, series: Series) -> Plot:
    """The losses of both runs over each other."""
    curves = list(_loss_curves(series.losses))
    ends = "; ".join(f"{curve.name} from {curve.values[0]:.4g} to {curve.values[-1]:.4g}" for curve in curves)
    note = "In float64, as passed to backward. "
    if len(series.steps) > COLUMNS:
        note += "Each point is the mean of some steps, in the area that they cover."
    summary = f"Losses that backward was called on. {ends}."
    finite = series.losses[np.isfinite(series.losses)]
    scale = linear(float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf)))
    title = "Loss, both runs over each other"
    return Plot(key, title, summary, note, series.steps, curves, scale, "{:.6g}")


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
