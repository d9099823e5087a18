"""The charts of one verdict: how far the runs are apart at each step, their losses, their learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.causes.words import names_text
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.bins import Doubles
from dp2ddp.report.charts import COLUMNS, Curve, Plot, chart
from dp2ddp.report.limits import nearest_limits, worst
from dp2ddp.report.result_document import Chart
from dp2ddp.report.scales import Differences, differences, linear
from dp2ddp.report.table import furthest_names

_MOST_GROUPS = 4  # of parameters, whose learning rates are drawn


def charts(verdict: Verdict) -> Iterator[Chart]:
    """All that there is something to see in."""
    series = verdict.float64.series
    if series is None or not len(series.steps):
        return
    key = f"w{verdict.world}"
    yield chart(_differences(f"{key}-difference", verdict, series))
    if not np.isnan(series.losses).all():
        yield chart(_losses(f"{key}-loss", series))
    if _varies(series):
        yield chart(_rates(f"{key}-rate", series))


def constant_rate(verdict: Verdict) -> str:
    """A learning rate that stays as it is needs no chart: a sentence; "" for one that does not, or for none."""
    series = verdict.float64.series
    if (
        series is None
        or not len(series.steps)
        or _varies(series)
        or not np.isfinite(series.learning_rates).any()
    ):
        return ""
    return f"Learning rate: {np.nanmax(series.learning_rates):.6g} in all steps, in both runs."


def _varies(series: Series) -> bool:
    rates = series.learning_rates[np.isfinite(series.learning_rates)]
    return bool(rates.size and np.ptp(rates) > 0)


def _differences(key: str, verdict: Verdict, series: Series) -> Plot:
    """The largest relative difference at each step, beside the natural noise and what is allowed."""
    nearest = nearest_limits(verdict.float64, series)
    curves = list(_difference_curves(series, nearest.sizes, verdict))
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
        band=Curve(f"allowed in float64: {FACTOR:g} times the natural noise", "allowed", nearest.limits),
        mark=(first.step, f"they part at step {first.step}") if first is not None else None,
        words=("furthest", furthest_names(series)),
    )


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
    """The losses of both runs at each step."""
    curves = list(_loss_curves(series.losses))
    ends = "; ".join(f"{curve.name} from {curve.values[0]:.4g} to {curve.values[-1]:.4g}" for curve in curves)
    note = "In float64, as passed to backward. "
    if len(series.steps) > COLUMNS:
        note += "Each point is the mean of some steps, in the area that they cover."
    summary = f"Losses that backward was called on. {ends}."
    return _both(key, "Loss, both runs over each other", summary, note, series, curves)


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


def _rates(key: str, series: Series) -> Plot:
    """The learning rates of both runs at each step."""
    rates = series.learning_rates
    same = np.array_equal(rates[:, 0], rates[:, 1], equal_nan=True)
    words = "The same in all steps." if same else "Not the same in all steps."
    groups = list(_groups(rates))
    if len(groups) > _MOST_GROUPS:
        words += f" Drawn are {_MOST_GROUPS} of {len(groups)} groups of parameters; the CSV has all."
    curves, ends = [], []
    for index, (which, expected, actual) in enumerate(groups[:_MOST_GROUPS]):
        of = "" if len(groups) == 1 else f", {which}"
        curves.append(Curve(f"DataParallel{of}", "wide", expected))
        curves.append(Curve(f"DDP, rank 0{of}", f"rank{index % 6}", actual))
        known = expected[np.isfinite(expected)]
        ends.append(
            f"{which} from {known[0]:.4g} to {known[-1]:.4g}" if known.size else f"{which} on one side only"
        )
    summary = f"Learning rates under DataParallel: {'; '.join(ends)}. {words}"
    return _both(key, "Learning rate", summary, words, series, curves)


def _groups(rates: Doubles) -> Iterator[tuple[str, Doubles, Doubles]]:
    """DataParallel's and rank 0's; groups whose rates are the same are one line."""
    alike: dict[bytes, list[int]] = {}
    for group in range(rates.shape[2]):
        alike.setdefault(rates[:, :, group].tobytes(), []).append(group)
    for groups in alike.values():
        name = f"group{'s' * (len(groups) > 1)} {names_text(groups)}"
        yield name, rates[:, 0, groups[0]], rates[:, 1, groups[0]]


def _both(key: str, title: str, summary: str, note: str, series: Series, curves: Sequence[Curve]) -> Plot:
    """Both runs over each other."""
    values = np.concatenate([curve.values for curve in curves])
    finite = values[np.isfinite(values)]
    scale = linear(float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf)))
    return Plot(key, title, summary, note, series.steps, curves, scale, "{:.6g}")
