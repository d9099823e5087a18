"""The result of `verify` as JSON; docs/json.md and verify.schema.json say what each key means."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.causes.cause import Cause
from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.bins import Doubles
from dp2ddp.report.comparison import Report

SCHEMA = "dp2ddp.verify/2"
LAST = 1 << 60  # behind the last step


def as_document(report: Report) -> str:
    """The whole report, for eyes too."""
    return json.dumps(document(report), indent=2, allow_nan=False)


def document(report: Report) -> dict[str, Any]:
    """The report as plain data (docs/json.md)."""
    return {
        "schema": SCHEMA,
        "script": report.script,
        "same": report.same,
        "outcome": report.outcome,
        "launch": report.launch,
        "convert": report.convert or None,
        "seconds": report.seconds,
        "failure": report.failure or None,
        "failed": None if report.failed is None else dict(report.failed),
        "accepted": [dict(answer) for answer in report.accepted],
        "surroundings": dict(report.surroundings),
        "verdicts": [_verdict(verdict) for verdict in report.verdicts],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    text, files = verdict.stdout, verdict.files
    return {
        "world": verdict.world,
        "same": verdict.same,
        "only_gradients": verdict.only_gradients,
        "lockstep": verdict.lockstep,
        "hidden": list(verdict.hidden),
        "unshared": list(verdict.unshared),
        "unsteady": _difference(verdict.unsteady),
        "aligned": verdict.aligned and _aligned(verdict.aligned),
        "float64": _comparison(verdict.float64),
        "float32": verdict.float32 and _comparison(verdict.float32),
        "stdout": {
            "same": text.same,
            "lines": text.lines,
            "rounded": text.rounded,
            "masked": text.masked,
            "first": text.first and _line(text.first),
            "others": [_line(each) for each in text.others],
        },
        "printing_ranks": list(verdict.printing_ranks),
        "files": {
            "same": files.same,
            "count": files.files,
            "different": [{"path": each.path, "what": each.what} for each in files.different],
        },
        "codes": list(verdict.codes),
        "last_words": list(verdict.last_words),
        "seconds": list(verdict.seconds),
        "in_turn": verdict.in_turn,
        "memory": [{"run": each.run, "bytes": each.bytes} for each in verdict.memory],
        "causes": [_cause(cause) for cause in verdict.causes],
        "unchecked": [each.value for each in verdict.float64.unchecked],
        "remarks": [*verdict.remarks, *verdict.float64.remarks],
    }


def _line(different: tuple[int, str, str]) -> dict[str, Any]:
    return dict(zip(("line", "dp", "ddp"), different, strict=True))


def _aligned(aligned: Aligned) -> dict[str, Any]:
    return {
        "same": aligned.same,
        "unshared": list(aligned.unshared),
        "unlike": list(aligned.unlike),
        "weights_taken": aligned.taken,
        "float64": _comparison(aligned.comparison),
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "same": comparison.same,
        "identical": comparison.identical,
        "steps": comparison.steps,
        "rank_steps": list(comparison.rank_steps),
        "stepped": comparison.stepped,
        "compared": list(comparison.parts),
        "identical_steps": comparison.identical_steps,
        "identical_buffers": comparison.identical_buffers,
        "rows": [list(rows) for rows in comparison.rows],
        "rank_rows": [list(rows) for rows in comparison.rank_rows],
        "largest": _difference(comparison.largest),
        "first": _difference(comparison.first),
        "also": [_difference(each) for each in comparison.also],
        "ranks_that_agree": [list(group) for group in comparison.agreeing_ranks],
        "noisy": {"elements": comparison.noisy, "largest": comparison.noise},
        "worst": _difference(comparison.worst),
        "natural_noise": _noise(comparison),
        "series": comparison.series and _series(comparison.series),
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "code": cause.code,
        "title": cause.title,
        "evidence": list(cause.evidence),
        "advice": cause.advice,
        "weight": cause.weight,
        "edits": list(cause.edits),
    }


def _noise(comparison: Comparison) -> dict[str, Any] | None:
    """None where no difference asked for a second DataParallel run."""
    natural = comparison.natural
    if natural is None:
        return None
    return {
        "gradients": natural.of("gradient", LAST),
        "parameters": natural.of("parameter", LAST),
        "losses": natural.of("loss", LAST),
        "ratio": None if comparison.noise_ratio is None else _finite(comparison.noise_ratio),
        "allowed_ratio": FACTOR,
        "hides_from": comparison.hides_from,
    }


def _series(series: Series) -> dict[str, Any]:
    """What charts draw, in short: the parameters that came apart, the furthest first."""
    parameters = [
        {
            "name": name,
            "gradient": _peak(series, series.gradients[:, at]),
            "parameter": _peak(series, series.parameters[:, at]),
        }
        for at, name in enumerate(series.names)
    ]
    differing = [each for each in parameters if each["gradient"] or each["parameter"]]
    return {
        "steps": len(series.steps),
        "parameters": len(series.names),
        "losses": {"first": _row(series.losses[:1]), "last": _row(series.losses[-1:])},
        "apart": sorted(differing, key=_size, reverse=True),
    }


def _peak(series: Series, values: Doubles) -> dict[str, Any] | None:
    """The largest difference of one parameter and its step; None where there is none."""
    if not (values > 0).any():
        return None
    at = int(np.nanargmax(values))
    return {"size": _finite(float(values[at])), "step": int(series.steps[at])}


def _size(each: dict[str, Any]) -> float:
    peaks = [peak for peak in (each["gradient"], each["parameter"]) if peak]
    return max(float("inf") if peak["size"] is None else peak["size"] for peak in peaks)


def _row(losses: Doubles) -> list[float | None]:
    """DataParallel, then each rank."""
    return [_finite(float(loss)) for loss in losses.reshape(-1)]


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "kind": difference.kind,
        "name": difference.name,
        "step": difference.step,
        "rank": difference.rank,
        "size": _finite(difference.size),
        "ratio": None if difference.ratio is None else _finite(difference.ratio),
        "ulps": _finite(difference.ulps),
        "noise": _finite(difference.noise),
        "noise_ratio": _finite(difference.noise_ratio),
        "allowed": _finite(difference.allowed),
    }


def _finite(number: float) -> float | None:
    """JSON has no infinity: null says that one side is missing, or not a number."""
    return number if math.isfinite(number) else None
