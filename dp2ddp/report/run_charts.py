"""What both runs say of themselves at each step, over each other: losses and learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.causes.words import names_text
from dp2ddp.comparison.series import Series
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

_MOST_GROUPS = 4  # of parameters, whose learning rates are drawn
_Named = Sequence[tuple[str, str, Doubles]]  # name, style, a figure for each step


def loss_chart(key: str, series: Series) -> Chart:
    """The losses of both runs at each step."""
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
    """The learning rates of both runs at each step."""
    rates = series.learning_rates
    same = np.array_equal(rates[:, 0], rates[:, 1], equal_nan=True)
    words = "The same in all steps." if same else "Not the same in all steps."
    groups = list(_groups(rates))
    if len(groups) > _MOST_GROUPS:
        words += f" Drawn are {_MOST_GROUPS} of {len(groups)} groups of parameters; the CSV has all."
    named, ends = [], []
    for index, (which, expected, actual) in enumerate(groups[:_MOST_GROUPS]):
        of = "" if len(groups) == 1 else f", {which}"
        named += [(f"DataParallel{of}", "wide", expected), (f"DDP, rank 0{of}", f"rank{index % 6}", actual)]
        known = expected[np.isfinite(expected)]
        ends.append(
            f"{which} from {known[0]:.4g} to {known[-1]:.4g}" if known.size else f"{which} on one side only"
        )
    summary = f"Learning rates under DataParallel: {'; '.join(ends)}. {words}"
    return _chart(key, "Learning rate", summary, words, series, named)


def _groups(rates: Doubles) -> Iterator[tuple[str, Doubles, Doubles]]:
    """DataParallel's and rank 0's; groups whose rates are the same are one line."""
    alike: dict[bytes, list[int]] = {}
    for group in range(rates.shape[2]):
        alike.setdefault(rates[:, :, group].tobytes(), []).append(group)
    for groups in alike.values():
        name = f"group{'s' * (len(groups) > 1)} {names_text(groups)}"
        yield name, rates[:, 0, groups[0]], rates[:, 1, groups[0]]


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
