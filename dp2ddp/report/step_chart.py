"""The time of each measured step, of both versions."""

from __future__ import annotations

import numpy as np

from dp2ddp.costs.result import Measured
from dp2ddp.report.charts import Curve, Plot, chart
from dp2ddp.report.quantities import NAMES, duration
from dp2ddp.report.result_document import Chart
from dp2ddp.report.scales import Linear

_STYLES = {"dp": "wide", "ddp": "rank0"}


def step_chart(measured: Measured) -> Chart:
    """In milliseconds, one run behind the other."""
    both = (measured.dp, measured.ddp)
    count = min(len(each.seconds) for each in both)
    curves = [
        Curve(NAMES[each.mode], _STYLES[each.mode], np.array(each.seconds[:count]) * 1000) for each in both
    ]
    medians = "; ".join(
        f"{NAMES[each.mode]} {duration(each.step.median)}, from {duration(each.step.p10)} (p10) to "
        f"{duration(each.step.p90)} (p90)"
        for each in both
    )
    plot = Plot(
        key=f"w{measured.world}-steps",
        title="Time of each step",
        summary=f"Median: {medians}.",
        note="In milliseconds, all runs one behind the other, without their warm-up.",
        steps=np.arange(count, dtype=np.int64),
        curves=curves,
        scale=Linear(0.0, float(max(curve.values.max() for curve in curves)) * 1.06),
        form="{:.4g} ms",
    )
    return chart(plot)
