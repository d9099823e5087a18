"""A conversion as JSON (schema version 1, docs/json.md)."""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.helpers import HelperModule
from dp2ddp.codemod.plans.planned import Planned
from dp2ddp.codemod.rule import all_rules
from dp2ddp.report.conversion_report import ConversionReport, accepted_text

VERSION = 1


def conversion_json(conversion: Conversion, written: str | None) -> str:
    """The whole report, for eyes too."""
    return json.dumps(conversion_data(ConversionReport(conversion, written)), indent=2) + "\n"


def conversion_data(report: ConversionReport) -> dict[str, object]:
    """The report as plain data."""
    conversion, written = report.conversion, report.written
    return {
        "version": VERSION,
        "file": conversion.before.name,
        "written": written,
        "changed": conversion.changed,
        "world": conversion.world,
        "launch": conversion.launch_of(written) if conversion.changed else None,
        "style": conversion.style,
        "differences": list(map(dataclasses.asdict, conversion.differences)),
        "kept": list(conversion.kept),
        "helpers": _helpers_as_data(conversion.helpers),
        "edits": [_as_data(edit) for edit in conversion.edits],
        "notes": [_as_data(note) for note in conversion.notes],
        "used_by": [
            {"file": str(entry.path), "uses": [str(use) for use in entry.uses]}
            for entry in conversion.used_by
        ],
        "missing": list(conversion.missing),
        "unread": list(conversion.unread),
        "hazards": [{**_as_data(hazard), "advice": _advice(hazard)} for hazard in conversion.hazards],
        "accepted": [accepted_data(conversion, answer) for answer in conversion.accepted],
    }


def _helpers_as_data(module: HelperModule | None) -> dict[str, object] | None:
    if module is None:
        return None
    return {
        "file": module.before.name,
        "lines": len(module.after.splitlines()),
        "added": list(module.added),
        "kept": list(module.kept),
        "dropped": list(module.dropped),
    }


@lru_cache
def _names_of_rules() -> dict[str, str]:
    return {rule.code: rule.name for rule in all_rules()}


def _as_data(planned: Planned) -> dict[str, object]:
    return {
        "code": planned.code,
        "file": planned.file,
        "cell": planned.place.cell,
        "line": planned.place.line,
        "column": planned.column,
        "why": planned.why or _names_of_rules()[planned.code],
        "because": planned.because,
    }


def accepted_data(conversion: Conversion, planned: Planned) -> dict[str, object]:
    """A hazard with its answer; `text` is all of it in words."""
    assert planned.acceptance
    answer = {"by": planned.acceptance.by, "reason": planned.acceptance.reason}
    return {
        **_as_data(planned),
        "advice": _advice(planned),
        **answer,
        "text": accepted_text(conversion, planned),
    }


def _advice(planned: Planned) -> str:
    return planned.finding.advice if isinstance(planned.finding, Hazard) else ""
