"""The result of `convert` as one HTML file, in the design of verify's page."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dp2ddp.codemod.choices import EXACT
from dp2ddp.report.change_view import ShownChange, shown_change
from dp2ddp.report.conversion import OF_MISSING, accepted_text, conversion_json
from dp2ddp.report.conversion_report import (
    ConversionReport,
    how_to_answer,
    next_steps,
    place_of,
    rules_of,
    source_line,
    written_files,
)
from dp2ddp.report.pages import rendered
from dp2ddp.report.script_changes import changes_of


def page(report: ConversionReport) -> str:
    """The whole file."""
    conversion = report.conversion
    changes = [
        shown_change(change, f"file{number}") for number, change in enumerate(changes_of(conversion), 1)
    ]
    return rendered(
        "convert.html.j2",
        "convert",
        title=f"{report.word} · {conversion.before.name}",
        look=report.word.lower(),
        places=list(_places(report, changes)),
        document=json.loads(conversion_json(conversion, report.written)),
        report=report,
        conversion=conversion,
        steps=list(next_steps(report)),
        files=list(written_files(report)),
        hazards=[
            (each, place_of(conversion, each), source_line(conversion, each), *how_to_answer(each))
            for each in conversion.hazards
        ],
        accepted=[accepted_text(conversion, each) for each in conversion.accepted],
        changes=changes,
        notes=[(place_of(conversion, each), each) for each in conversion.notes],
        of_missing=OF_MISSING,
        rules=rules_of(conversion),
    )


def _places(report: ConversionReport, changes: list[ShownChange]) -> Iterator[tuple[str, str]]:
    conversion = report.conversion
    if conversion.hazards or conversion.accepted:
        yield "hazards", "Hazards"
    if list(next_steps(report)):
        yield "next", "What to do next"
    if conversion.changed and conversion.style != EXACT:
        yield "decided", "What was decided"
    if changes:
        yield "script", "What changed"
    if conversion.notes or conversion.missing or conversion.unread or conversion.used_by:
        yield "notes", "Notes"
    if rules_of(conversion):
        yield "rules", "Rules"
    yield "surroundings", "Environment"
