"""The result of `verify` as JSON; json_types.py says what is in it."""

from __future__ import annotations

from typing import Any

from dp2ddp.comparison import verdict as results
from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.report import json_types as types
from dp2ddp.report.comparison import Report
from dp2ddp.report.json_types import filled

LAST = 1 << 60  # behind the last step


def as_document(report: Report) -> str:
    """The whole report, for eyes too."""
    return types.text(document(report))


def document(report: Report) -> dict[str, Any]:
    """The report as plain data (docs/json.md)."""
    return types.plain(
        types.VerifyDocument,
        report,
        schema="dp2ddp.verify/2",
        convert=report.convert or None,
        failure=report.failure or None,
        surroundings=dict(report.surroundings),
        verdicts=[_verdict(verdict) for verdict in report.verdicts],
    )


def _verdict(verdict: results.Verdict) -> types.VerdictJson:
    aligned = verdict.aligned
    return filled(
        types.VerdictJson,
        verdict,
        aligned=aligned and filled(types.AlignedJson, aligned, comparison=_comparison(aligned.comparison)),
        float64=_comparison(verdict.float64),
        float32=verdict.float32 and _comparison(verdict.float32),
        unchecked=[each.value for each in verdict.float64.unchecked],
        remarks=[*verdict.remarks, *verdict.float64.remarks],
    )


def _comparison(comparison: Comparison) -> types.ComparisonJson:
    return filled(
        types.ComparisonJson,
        comparison,
        noisy=types.NoisyJson(comparison.noisy, comparison.noise),
        natural_noise=_noise(comparison),
        series=comparison.series and _series(comparison.series),
    )


def _noise(comparison: Comparison) -> types.NaturalNoiseJson | None:
    """None where no difference asked for a second DataParallel run."""
    natural = comparison.natural
    if natural is None:
        return None
    return types.NaturalNoiseJson(
        gradients=natural.of("gradient", LAST),
        parameters=natural.of("parameter", LAST),
        losses=natural.of("loss", LAST),
        ratio=comparison.noise_ratio,
        allowed_ratio=FACTOR,
        hides_from=comparison.hides_from,
    )


def _series(series: Series) -> types.SeriesJson:
    """What charts draw, in short."""
    ends = (losses.reshape(-1).tolist() for losses in (series.losses[:1], series.losses[-1:]))
    return filled(
        types.SeriesJson,
        series,
        steps=len(series.steps),
        parameters=len(series.names),
        losses=types.LossesJson(*ends),
    )
