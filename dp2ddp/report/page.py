"""The result of `verify` as one HTML file that needs nothing else: readable offline, without JavaScript, on paper."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.parse
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dp2ddp.report.changes import DiffLine, diff_lines, printed_diff, text_diff
from dp2ddp.report.charts import Chart, sample
from dp2ddp.report.comparison import Fact, Report, facts, headline
from dp2ddp.report.comparison_json import document
from dp2ddp.report.figures import charts, sentences
from dp2ddp.report.table import steps_csv
from dp2ddp.verify.compare import Comparison
from dp2ddp.verify.outputs import FileDifference
from dp2ddp.verify.verdict import Verdict

if TYPE_CHECKING:
    from jinja2 import Environment

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
    script = text_of("page.js")
    template = environment().get_template("page.html.j2")
    return template.render(
        report=report,
        word=headline(report).partition(" ")[0],
        verdict_words=headline(report).partition(" ")[2],
        parts=[_part(verdict) for verdict in report.verdicts],
        changes=[(change, diff_lines(change)) for change in report.changes],
        document=in_page(document(report)),
        style=Markup(text_of("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sample=sample,
        amount=_amount,
        causes=next((verdict.causes for verdict in report.verdicts if verdict.causes), ()),
        points=lambda chart: in_page(chart.points),
    )


def environment() -> Environment:
    """In which pages are made: whatever comes from a script is escaped."""
    from jinja2 import Environment, PackageLoader

    return Environment(
        loader=PackageLoader("dp2ddp.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )


def text_of(name: str) -> str:
    """Of a file beside this one."""
    return files("dp2ddp.report").joinpath(name).read_text(encoding="utf-8")


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


def in_page(data: Any) -> Markup:
    """In few letters, and unable to end the element it stands in, whatever names and lines it holds."""
    document = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        document = document.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(document)
