"""The charts of one verdict, drawn from its series."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.series import Series
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.charts import Chart
from dp2ddp.report.difference_chart import difference_chart
from dp2ddp.report.heat import heat_maps
from dp2ddp.report.rows_chart import rows_chart
from dp2ddp.report.run_charts import loss_chart, rate_chart


def charts(verdict: Verdict) -> Iterator[Chart]:
    """All that there is something to see in."""
    series = verdict.float64.series
    if series is None or not len(series.steps):
        return
    key = f"w{verdict.world}"
    yield difference_chart(f"{key}-difference", verdict, series)
    if not np.isnan(series.losses).all():
        yield loss_chart(f"{key}-loss", series)
    yield from heat_maps(key, verdict.float64, series)
    if series.rows.any():
        yield rows_chart(f"{key}-rows", series)
    if _varies(series):
        yield rate_chart(f"{key}-rate", series)


def sentences(verdict: Verdict) -> Iterator[str]:
    """What needs no chart."""
    series = verdict.float64.series
    if series is None or not len(series.steps):
        return
    if not (series.gradients > 0).any() and not (series.parameters > 0).any():
        yield (
            f"No map of parameters and steps: all {len(series.names)} gradients and parameters "
            f"have the same bits in float64 in all {len(series.steps)} steps."
        )
    if not _varies(series) and np.isfinite(series.learning_rates).any():
        yield f"Learning rate: {np.nanmax(series.learning_rates):.6g} in all steps, in both runs."


def _varies(series: Series) -> bool:
    """A rate that stays as it is needs no chart."""
    rates = series.learning_rates[np.isfinite(series.learning_rates)]
    return bool(rates.size and np.ptp(rates) > 0)
