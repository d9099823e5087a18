"""Heat maps: parameters down, steps across, a shade for each size of difference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.report.bins import Doubles, bins_of
from dp2ddp.report.charts import Chart, Table, mosaic, svg
from dp2ddp.report.scales import Tick, step_ticks
from dp2ddp.verify.series import Series

_COLUMNS = 120
_NAMED = 40  # rows that each have their name beside them
_WORST = 40  # rows of the table
_STEPS = (1e-4, 1e-2, 1.0, 1e3, 1e6, 1e9)  # of what is allowed: three shades below it, four above
_ENDLESS, _NOTHING = "8", "9"


def heat_maps(key: str, series: Series, allowed: float) -> Iterator[Chart]:
    """Of gradients and of parameters, where there is any difference."""
    for kind, values in (("gradients", series.gradients), ("parameters", series.parameters)):
        if (values > 0).any():
            yield _heat_map(f"{key}-{kind}", kind, series, values, allowed)


def _heat_map(key: str, kind: str, series: Series, values: Doubles, allowed: float) -> Chart:
    bins = bins_of(series.steps, _COLUMNS)
    levels = [_levels(bins.highs(column), allowed) for column in values.T]
    title = f"Which {kind}, when"
    summary = _summary(kind, series, values, allowed)
    picture = svg(key, title, summary, mosaic(levels), size=(len(bins), len(levels)))
    points = {
        "steps": bins.names(),
        "rows": list(series.names),
        "levels": levels,
        "words": _level_words(allowed),
    }
    used = sorted({level for text in levels for level in text})
    legend = tuple((f"level{level}", _level_words(allowed)[int(level)]) for level in used)
    what = "gradient" if kind == "gradients" else "value"
    return Chart(
        key=key,
        title=title,
        summary=summary,
        svg=picture,
        heights=(),
        steps=step_ticks(series.steps.tolist()),
        legend=legend,
        table=_worst(kind, series, values, allowed),
        points=points,
        note=f"Relative difference of each parameter's {what} in float64. {summary}",
        kind="heat",
        rows=_row_names(series.names),
    )


def _levels(highs: Doubles, allowed: float) -> str:
    """A digit for each column."""
    edges = np.array(_STEPS) * allowed
    found = np.searchsorted(edges, highs, side="left") + 1
    texts = np.where(highs == 0, 0, found).astype(str)
    texts[np.isinf(highs)] = _ENDLESS
    texts[np.isnan(highs)] = _NOTHING
    return "".join(texts.tolist())


def _level_words(allowed: float) -> list[str]:
    edges = [f"{step * allowed:.0e}".replace("e+00", "") for step in _STEPS]
    between = [f"{low} to {high}" for low, high in zip(edges, edges[1:], strict=False)]
    between[2:] = [f"{text}, not allowed" for text in between[2:]]
    return [
        "the same bits", f"up to {edges[0]}", *between, f"above {edges[-1]}, not allowed",
        "missing or no number on one side", "not compared",
    ]  # fmt: skip


def _summary(kind: str, series: Series, values: Doubles, allowed: float) -> str:
    above = (values > allowed).any(axis=0)
    total = len(series.names)
    if not above.any():
        return f"All {total} {kind} stay within what is allowed."
    first = int(np.argmax((values > allowed).any(axis=1)))
    names = [series.names[index] for index in np.flatnonzero(values[first] > allowed)]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    count = int(above.sum())
    return (
        f"{count} of {total} {kind} come further apart than allowed; "
        f"first at step {series.steps[first]}: {shown}."
    )


def _worst(kind: str, series: Series, values: Doubles, allowed: float) -> Table:
    largest = np.fmax.reduce(values, axis=0, initial=np.nan)
    order = np.argsort(-np.nan_to_num(largest, nan=-1.0), kind="stable")[:_WORST]
    rows = tuple(_worst_row(series, values[:, index], index, allowed) for index in order.tolist())
    shown = f"The {len(rows)} of {len(series.names)} {kind} that come furthest apart"
    return Table(
        shown, ("parameter", "largest difference", "at step", "first step beyond what is allowed"), rows
    )


def _worst_row(series: Series, values: Doubles, index: int, allowed: float) -> tuple[str, ...]:
    if np.isnan(values).all():
        return series.names[index], "-", "-", "-"
    at = int(np.nanargmax(values))
    beyond = np.flatnonzero(values > allowed)
    first = str(series.steps[beyond[0]]) if beyond.size else "none"
    return series.names[index], f"{values[at]:.1e}", str(series.steps[at]), first


def _row_names(names: tuple[str, ...]) -> tuple[Tick, ...]:
    """All names, if they have room; else where a module begins, as many as fit."""
    count = len(names)
    if count <= _NAMED:
        return tuple(Tick((index + 0.5) / count * 100, name) for index, name in enumerate(names))
    ticks: list[Tick] = []
    for index, name in enumerate(names):
        place = (index + 0.5) / count * 100
        begins = index == 0 or _module(name) != _module(names[index - 1])
        if begins and (not ticks or place - ticks[-1].place >= 100 / _NAMED):
            ticks.append(Tick(place, name))
    return tuple(ticks)


def _module(name: str) -> str:
    return name.rpartition(".")[0]
