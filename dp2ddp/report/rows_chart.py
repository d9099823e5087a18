"""How many rows each rank worked on at each step."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from dp2ddp.comparison.series import Series
from dp2ddp.report.bins import Bins, bins_of
from dp2ddp.report.charts import Chart, ChartLine, Table, dots, finished, grid, stacks, svg
from dp2ddp.report.scales import Linear

_BARS = 120
_TITLE = "Rows of each rank"
_Counts = npt.NDArray[np.int64]


def rows_chart(key: str, series: Series) -> Chart:
    """A bar is what most steps of its column had; a dot is what another one had, so that none is lost."""
    bins = bins_of(series.steps, _BARS)
    kinds, first, kind, counts = np.unique(
        series.rows, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    kind = kind.reshape(-1)
    usual = kinds[_usual(kind, bins)].astype(np.float64)
    others = _others(kinds.sum(axis=1), kind, bins)
    most = float(max(kinds.sum(axis=1).max(), 1))
    scale = Linear(0.0, most)
    order = np.argsort(-counts, kind="stable")
    summary = _summary(kinds[order], counts[order])
    marks = [(column, scale.height(total)) for column, total in others]
    picture = svg(key, _TITLE, summary, grid(scale), stacks(usual, most), dots("other", marks, len(bins)))
    legend = [(f"part{rank % 6}", f"rank {rank}") for rank in range(series.rows.shape[1])]
    legend += [("other", "all rows of another step in the same column")] if others else []
    lines = [ChartLine(f"rank {rank}", "", *[usual[:, rank]] * 3) for rank in range(usual.shape[1])]
    made = finished(
        key,
        _TITLE,
        summary,
        summary,
        picture,
        scale,
        tuple(legend),
        (bins, lines),
        (bins, []),
        "{:.0f}",
        kind="low",
    )
    return dataclasses.replace(made, table=_table(kinds[order], counts[order], series.steps[first[order]]))


def _usual(kind: _Counts, bins: Bins) -> _Counts:
    """The kind that most steps of a column are of, for each column."""
    return np.array([np.bincount(kind[first : last + 1]).argmax() for first, last in bins.spans()])


def _others(totals: _Counts, kind: _Counts, bins: Bins) -> list[tuple[int, int]]:
    """(column, all rows) of the other steps."""
    usual = _usual(kind, bins)
    others = [
        (column, int(totals[each]))
        for column, (first, last) in enumerate(bins.spans())
        for each in np.unique(kind[first : last + 1])
        if each != usual[column]
    ]
    return list(dict.fromkeys(others))


def _summary(kinds: _Counts, counts: _Counts) -> str:
    texts = [
        f"{' + '.join(map(str, rows))} in {_steps(int(count))}"
        for rows, count in zip(kinds[:6], counts, strict=False)
    ]
    more = f"; {len(kinds) - 6} more kinds of steps" if len(kinds) > 6 else ""
    return f"{'; '.join(texts)}{more}."


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _table(kinds: _Counts, counts: _Counts, firsts: _Counts) -> Table:
    head = (*(f"rank {rank}" for rank in range(kinds.shape[1])), "all", "steps", "first at step")
    rows = [
        (*map(str, rows), str(rows.sum()), str(count), str(first))
        for rows, count, first in zip(kinds[:40], counts, firsts, strict=False)
    ]
    return Table("Rows of each rank, and how many steps had these", head, tuple(rows))
