"""Heat maps: parameters down, steps across, a shade for each size of difference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.report.bins import Doubles, bins_of
from dp2ddp.report.charts import Chart, Table, mosaic, svg
from dp2ddp.report.limits import limits
from dp2ddp.report.scales import Tick, step_ticks

_COLUMNS = 120
_NAMED = 40  # rows that each have their name beside them
_WORST = 40  # rows of the table
_WITHIN = (1e-3, 3e-2, 1.0)  # of what is allowed: natural noise, some of it, all that is allowed
_BEYOND = (1e-6, 1e-3, 0.1)  # relative differences that are not allowed
_ENDLESS, _NOTHING = "8", "9"


def heat_maps(key: str, comparison: Comparison, series: Series) -> Iterator[Chart]:
    """A heat map of gradients and one of parameters, where there is any difference."""
    for kind, values in (("gradients", series.gradients), ("parameters", series.parameters)):
        if (values > 0).any():
            allowed = limits(comparison, kind.removesuffix("s"), len(series.steps))
            yield _heat_map(f"{key}-{kind}", kind, series, values, allowed)


def _heat_map(key: str, kind: str, series: Series, values: Doubles, allowed: Doubles) -> Chart:
    bins = bins_of(series.steps, _COLUMNS)
    levels = [_levels(bins.highs(column), bins.highs(column / allowed)) for column in values.T]
    title = f"Which {kind}, when"
    summary = _summary(kind, series, values, allowed)
    picture = svg(key, title, summary, mosaic(levels), size=(len(bins), len(levels)))
    points = {
        "steps": bins.names(),
        "rows": list(series.names),
        "levels": levels,
        "words": _WORDS,
    }
    used = sorted({level for text in levels for level in text})
    legend = tuple((f"level{level}", _WORDS[int(level)]) for level in used)
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
        note=f"Difference of each parameter's {what} in float64, beside the natural noise. {summary}",
        kind="heat",
        rows=_row_names(series.names),
    )


def _levels(sizes: Doubles, shares: Doubles) -> str:
    """A digit for each column: by its share of what is allowed; beyond that by its size."""
    within = np.searchsorted(np.array(_WITHIN), shares, side="left") + 1
    beyond = np.searchsorted(np.array(_BEYOND), sizes, side="left") + 1 + len(_WITHIN)
    texts = np.where(sizes == 0, 0, np.where(shares > 1, beyond, within)).astype(str)
    texts[np.isinf(sizes)] = _ENDLESS
    texts[np.isnan(sizes)] = _NOTHING
    return "".join(texts.tolist())


_WORDS = (
    "the same bits",
    "within natural noise",
    *(f"up to {share * FACTOR:g} times the noise" for share in _WITHIN[1:]),
    *(f"not allowed, up to {size:g}" for size in _BEYOND),
    f"not allowed, above {_BEYOND[-1]:g}",
    "missing or no number on one side",
    "not compared",
)


def _summary(kind: str, series: Series, values: Doubles, allowed: Doubles) -> str:
    above = (values > allowed[:, None]).any(axis=0)
    total = len(series.names)
    if not above.any():
        return f"All {total} {kind} stay within what is allowed."
    first = int(np.argmax((values > allowed[:, None]).any(axis=1)))
    names = [series.names[index] for index in np.flatnonzero(values[first] > allowed[first])]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    count = int(above.sum())
    return (
        f"{count} of {total} {kind} come further apart than allowed; "
        f"first at step {series.steps[first]}: {shown}."
    )


def _worst(kind: str, series: Series, values: Doubles, allowed: Doubles) -> Table:
    largest = np.fmax.reduce(values, axis=0, initial=np.nan)
    order = np.argsort(-np.nan_to_num(largest, nan=-1.0), kind="stable")[:_WORST]
    rows = tuple(_worst_row(series, values[:, index], index, allowed) for index in order.tolist())
    shown = f"The {len(rows)} of {len(series.names)} {kind} that come furthest apart"
    return Table(
        shown, ("parameter", "largest difference", "at step", "first step beyond what is allowed"), rows
    )


def _worst_row(series: Series, values: Doubles, index: int, allowed: Doubles) -> tuple[str, ...]:
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
