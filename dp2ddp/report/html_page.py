"""The result of `verify` as one HTML file."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.output_comparison import FileDifference
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.change_view import shown_change
from dp2ddp.report.charts import Chart, sample
from dp2ddp.report.comparison import Fact, Report, facts, headline
from dp2ddp.report.comparison_json import document
from dp2ddp.report.pages import rendered
from dp2ddp.report.script_changes import DiffLine, printed_diff, text_diff
from dp2ddp.report.table import steps_csv
from dp2ddp.report.verdict_charts import charts, sentences

_MOST_LINES = 400  # of a diff of what was printed


@dataclass(frozen=True)
class _Part:
    """What the page says about one number of devices."""

    verdict: Verdict
    facts: tuple[Fact, ...]
    charts: tuple[Chart, ...]
    printed: tuple[DiffLine, ...]
    files: tuple[tuple[FileDifference, tuple[DiffLine, ...]], ...]
    sentences: tuple[str, ...]
    csv: str  # a data URL; "" without steps


def page(report: Report) -> str:
    """The whole file."""
    word, _, verdict_words = headline(report).partition(" ")
    convert = (("convert", report.convert),) if report.convert else ()
    return rendered(
        "page.html.j2",
        "verify",
        title=f"{word} · {report.script}",
        look=word.lower(),
        places=list(_places(report)),
        document=document(report),
        report=report,
        word=word,
        verdict_words=verdict_words,
        parts=[_part(verdict) for verdict in report.verdicts],
        changes=[shown_change(change) for change in report.changes],
        rows=(*convert, ("launch", report.launch), ("took", f"{report.seconds:.1f} s"), *report.surroundings),
        sample=sample,
        amount=_amount,
        causes=next((verdict.causes for verdict in report.verdicts if verdict.causes), ()),
    )


def _places(report: Report) -> Iterator[tuple[str, str]]:
    if report.failed:
        yield "failed", "Ranks" if report.failed["kind"] == "hang" else "Failure"
    for verdict in report.verdicts:
        yield f"w{verdict.world}", f"{verdict.world} device{'' if verdict.world == 1 else 's'}"
    if report.changes:
        yield "script", "Script"
    yield "surroundings", "Environment"


def _part(verdict: Verdict) -> _Part:
    return _Part(
        verdict=verdict,
        facts=tuple(facts(verdict)),
        charts=tuple(charts(verdict)),
        sentences=tuple(sentences(verdict)),
        printed=printed_diff(verdict, before=20, most=_MOST_LINES),
        files=tuple((each, text_diff(*each.texts)) for each in verdict.files.different),
        csv=_data_url(steps_csv(verdict)),
    )


def _amount(comparison: Comparison) -> str:
    if comparison.identical:
        return "the same bits"
    return f"{comparison.largest.size:.1e}" if comparison.largest else "-"


def _data_url(text: str) -> str:
    if not text:
        return ""
    return "data:text/csv;charset=utf-8," + urllib.parse.quote(text, safe=",.+-:()[]/ ")
