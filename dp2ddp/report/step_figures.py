"""The figures of every step in one verdict: how far the runs are apart and their losses as charts, a table, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.series import Doubles, Peak, Series, worst
from dp2ddp.comparison.tolerance import FACTOR, FLOAT64
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.charts import COLUMNS, Chart, Curve, differences, linear
from dp2ddp.report.result_document import Attachment, Block, Paragraph, Row, Table

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
