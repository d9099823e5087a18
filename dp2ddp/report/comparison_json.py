"""The result of `verify` as JSON; the schema is docs/json.md, and changes only with its number."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from dp2ddp.report.comparison import Report
from dp2ddp.verify.compare import Comparison, Difference
from dp2ddp.verify.verdict import Verdict

SCHEMA = "dp2ddp.verify/1"


def as_document(report: Report) -> str:
    """The whole report, for eyes too."""
    return json.dumps(document(report), indent=2, allow_nan=False)


def document(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "script": report.script,
        "same": report.same,
        "launch": report.launch,
        "seconds": report.seconds,
        "verdicts": [_verdict(verdict) for verdict in report.verdicts],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    text, files = verdict.stdout, verdict.files
    return {
        "world": verdict.world,
        "same": verdict.same,
        "float64": _comparison(verdict.float64),
        "float32": _comparison(verdict.float32),
        "stdout": {
            "same": text.same,
            "lines": text.lines,
            "rounded": text.rounded,
            "masked": text.masked,
            "first": text.first and {"line": text.first[0], "dp": text.first[1], "ddp": text.first[2]},
        },
        "voices": list(verdict.voices),
        "files": {
            "same": files.same,
            "count": files.files,
            "different": [{"path": each.path, "what": each.what} for each in files.different],
        },
        "codes": list(verdict.codes),
        "seconds": list(verdict.seconds),
        "causes": [dataclasses.asdict(cause) for cause in verdict.causes],
        "remarks": [*verdict.remarks, *verdict.float64.remarks],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "same": comparison.same,
        "identical": comparison.identical,
        "steps": comparison.steps,
        "rank_steps": list(comparison.rank_steps),
        "identical_steps": comparison.identical_steps,
        "identical_buffers": comparison.identical_buffers,
        "rows": [list(rows) for rows in comparison.rows],
        "largest": _difference(comparison.largest),
        "first": _difference(comparison.first),
        "also": [_difference(each) for each in comparison.also],
        "ranks_that_agree": [list(group) for group in comparison.agreeing_ranks],
        "noisy": {"elements": comparison.noisy, "largest": comparison.noise},
    }


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
    }


def _finite(number: float) -> float | None:
    """JSON has no infinity: null says that one side is missing, or not a number."""
    return number if math.isfinite(number) else None
