"""What both runs say of themselves at each step, over each other: losses and learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.report.bins import Doubles, bins_of
from dp2ddp.report.charts import (
    COLUMNS,
    TABLE_ROWS,
    Chart,
    area,
    curve,
    finished,
    grid,
    legend_words,
    means,
    svg,
)
from dp2ddp.report.scales import linear
from dp2ddp.verify.series import Series

_Named = Sequence[tuple[str, str, Doubles]]  # name, style, a figure for each step


def loss_chart(key: str, series: Series) -> Chart:
    named = list(_losses(series.losses))
    ends = "; ".join(f"{name} from {values[0]:.4g} to {values[-1]:.4g}" for name, _, values in named)
    note = "In float64, as passed to backward. "
    note += (
        "Each point is the mean of some steps, in the area that they cover."
        if len(series.steps) > COLUMNS
        else ""
    )
    return _chart(
        key,
        "Loss, both runs over each other",
        f"Losses that backward was called on. {ends}.",
        note,
        series,
        named,
    )


def _losses(losses: Doubles) -> Iterator[tuple[str, str, Doubles]]:
    """Ranks whose losses are the same are one line."""
    yield "DataParallel", "wide", losses[:, 0]
    groups: dict[bytes, list[int]] = {}
    for rank in range(losses.shape[1] - 1):
        groups.setdefault(losses[:, rank + 1].tobytes(), []).append(rank)
    for index, ranks in enumerate(groups.values()):
        every = len(groups) == 1 and len(ranks) > 1
        name = "every rank" if every else f"rank {' and '.join(map(str, ranks))}"
        yield f"DDP, {name}", f"rank{index % 6}", losses[:, ranks[0] + 1]


def rate_chart(key: str, series: Series) -> Chart:
    rates = series.learning_rates
    same = np.array_equal(rates[:, 0], rates[:, 1], equal_nan=True)
    words = "The same in all steps." if same else "Not the same in all steps."
    summary = f"Learning rate of the first group of parameters, from {rates[0, 0]:.4g} to {rates[-1, 0]:.4g}. {words}"
    named = [("DataParallel", "wide", rates[:, 0]), ("DDP, rank 0", "rank0", rates[:, 1])]
    return _chart(key, "Learning rate", summary, words, series, named)


def _chart(key: str, title: str, summary: str, note: str, series: Series, named: _Named) -> Chart:
    values = np.concatenate([each for _, _, each in named])
    finite = values[np.isfinite(values)]
    scale = linear(float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf)))
    bins, rough = bins_of(series.steps, COLUMNS), bins_of(series.steps, TABLE_ROWS)
    lines, rows = ([means(*each, columns) for each in named] for columns in (bins, rough))
    drawn = (*(area(line, scale) for line in lines), *(curve(line, scale) for line in lines))
    picture = svg(key, title, summary, grid(scale), *drawn)
    return finished(
        key, title, summary, note, picture, scale, legend_words(lines), (bins, lines), (rough, rows), "{:.6g}"
    )
