"""The figures of every step as CSV: what a chart draws of thousands of steps in columns, whole."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from dp2ddp.comparison.series import Doubles, Peak, Series, worst
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.result_document import Row, Table

_MOST_PARAMETERS = 40


def steps_csv(verdict: Verdict) -> str:
    """Empty for a script that takes no step."""
    series = verdict.float64.series
    if series is None or not len(series.steps):
        return ""
    columns = dict(_columns(series, verdict.float32.series if verdict.float32 else None))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return file.getvalue()


def furthest_parameters(verdict: Verdict) -> Iterator[Table]:
    """Which parameters come apart, the furthest first, and when; none where all have the same bits."""
    series = verdict.float64.series
    if apart := series.apart if series else []:
        yield Table(
            f"Parameters that come apart in float64: {len(apart)} of {len(series.names) if series else 0}",
            ("gradient, at most", "at step", "value, at most", "at step"),
            tuple(
                Row(each.name, (*_cells(each.gradient), *_cells(each.parameter)))
                for each in apart[:_MOST_PARAMETERS]
            ),
            of="parameter",
        )


def _cells(peak: Peak | None) -> tuple[str, str]:
    return (f"{peak[0]:.1e}", str(peak[1])) if peak else ("the same bits", "")


def _columns(double: Series, single: Series | None) -> Iterator[tuple[str, list[str]]]:
    count, world = len(double.steps), double.rows.shape[1]
    yield "step", [str(step) for step in double.steps]
    yield "loss DataParallel", _words(double.losses[:, 0], count)
    yield from ((f"loss rank {rank}", _words(double.losses[:, rank + 1], count)) for rank in range(world))
    for group in range(double.learning_rates.shape[2]):
        of = f", group {group}" if group else ""
        for side, who in enumerate(("DataParallel", "rank 0")):
            yield f"learning rate {who}{of}", _words(double.learning_rates[:, side, group], count)
    yield from ((f"rows rank {rank}", [str(rows) for rows in double.rows[:, rank]]) for rank in range(world))
    for label, series in (("float64", double), ("float32", single)):
        if series is not None:
            yield from _differences(label, series, count)
    yield "furthest gradient in float64", double.furthest


def _differences(label: str, series: Series, count: int) -> Iterator[tuple[str, list[str]]]:
    for kind, values in (("gradient", series.gradients), ("parameter", series.parameters)):
        yield f"{label} {kind} difference", _words(worst(values), count, 3)
    if series.noise is not None:
        yield f"{label} natural noise", _words(series.noise, count, 3)


def _words(values: Doubles, count: int, digits: int = 7) -> list[str]:
    return _padded(["" if value != value else f"{value:.{digits}g}" for value in values.tolist()], count)


def _padded(words: list[str], count: int) -> list[str]:
    return [*words, *[""] * (count - len(words))][:count]
