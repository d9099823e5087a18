"""The charts of `bench`: the time of each step, and bars of what each version takes, holds and sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from dp2ddp.costs.figures import Figures
from dp2ddp.costs.result import Benchmark, Measured
from dp2ddp.report.bench_text import NAMES, duration, size
from dp2ddp.report.bins import bins_of
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
from dp2ddp.report.scales import SIDE, Linear

_STYLES = {"dp": "wide", "ddp": "rank0"}
_PARTS = {"dp": "part3", "ddp": "part0"}


@dataclass(frozen=True)
class Bar:
    """A name, how long it is, and its value in words."""

    name: str
    part: str  # a class of page.css: its colour
    value: float
    words: str
    svg: Markup = Markup("")


@dataclass(frozen=True)
class Bars:
    """Bars that may be held against each other, with a sentence about them."""

    key: str
    title: str
    note: str
    bars: tuple[Bar, ...]


def step_chart(measured: Measured) -> Chart:
    """The time of each measured step, of both."""
    key, title = f"w{measured.world}-steps", "Time of each step"
    both = (measured.dp, measured.ddp)
    count = min(len(each.seconds) for each in both)
    values = [np.array(each.seconds[:count]) * 1000 for each in both]
    scale = Linear(0.0, float(max(each.max() for each in values)) * 1.06)
    steps = np.arange(count, dtype=np.int64)
    bins, rough = bins_of(steps, COLUMNS), bins_of(steps, TABLE_ROWS)
    names = [(NAMES[each.mode], _STYLES[each.mode]) for each in both]
    lines, rows = (
        [means(name, style, each, columns) for (name, style), each in zip(names, values, strict=True)]
        for columns in (bins, rough)
    )
    medians = "; ".join(
        f"{NAMES[each.mode]} {duration(each.step.median)}, from {duration(each.step.p10)} (p10) to "
        f"{duration(each.step.p90)} (p90)"
        for each in both
    )
    drawn = (*(area(line, scale) for line in lines), *(curve(line, scale) for line in lines))
    picture = svg(key, title, f"Median: {medians}.", grid(scale), *drawn)
    note = "In milliseconds, all runs one behind the other, without their warm-up."
    return finished(
        key, title, f"Median: {medians}.", note, picture, scale, legend_words(lines), (bins, lines), (rough, rows),
        "{:.4g} ms", kind="low",
    )  # fmt: skip


def bars(measured: Measured) -> Iterator[Bars]:
    """Memory of each device, and what goes between them."""
    key = f"w{measured.world}"
    if measured.dp.devices and measured.ddp.devices:
        values = [
            (f"{NAMES[each.mode]}, device {device}", _PARTS[each.mode], float(bytes_), size(bytes_))
            for each in (measured.dp, measured.ddp)
            for device, bytes_ in enumerate(each.devices)
        ]
        yield _drawn(f"{key}-memory", "Memory of each device", "The most that lived on it in a step.", values)
    if measured.world > 1 and measured.dp.collectives is not None:
        values = [
            (f"{NAMES[each.mode]}: {kind}", _PARTS[each.mode], sent.bytes, size(sent.bytes))
            for each, kinds in (
                (measured.dp, measured.dp.copies),
                (measured.ddp, measured.ddp.collectives or {}),
            )
            for kind, sent in sorted(kinds.items(), key=lambda item: -item[1].bytes)
            if sent.bytes
        ]
        note = "A step: what DataParallel's process copies between devices, and what one rank puts into collectives."
        yield _drawn(f"{key}-traffic", "Between devices", note, values)


def speeds(benchmark: Benchmark) -> Bars:
    """Samples a second, of each number of devices."""
    named = [
        (f"{NAMES[each.mode]}, {each.world} device{'' if each.world == 1 else 's'}", each)
        for each in _all(benchmark)
    ]
    values = [(name, _PARTS[each.mode], each.rate, f"{each.rate:.4g}") for name, each in named]
    return _drawn("speed", "Samples a second", "The same batches everywhere: longer is better.", values)


def _all(benchmark: Benchmark) -> Iterator[Figures]:
    first = benchmark.measured[0]
    if first.one_device and all(each.world != 1 for each in benchmark.measured):
        yield first.one_device
    for measured in benchmark.measured:
        yield from (measured.dp, measured.ddp)


def _drawn(key: str, title: str, note: str, values: Sequence[tuple[str, str, float, str]]) -> Bars:
    most = max((value for _, _, value, _ in values), default=0.0) or 1.0
    return Bars(
        key,
        title,
        note,
        tuple(Bar(name, part, value, words, _bar(part, value / most)) for name, part, value, words in values),
    )


def _bar(part: str, share: float) -> Markup:
    """Its words stand beside it, so it says nothing to those who hear the page."""
    return Markup(
        '<svg class="bar" viewBox="0 0 {0} 10" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="fill {1}" d="M0 0H{2}V10H0z"/></svg>'
    ).format(SIDE, part, f"{share * SIDE:.1f}")
