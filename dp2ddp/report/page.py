"""The result of `verify` as one HTML file that needs nothing else: readable offline, without JavaScript, on paper."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from dp2ddp.report.changes import DiffLine, diff_lines, text_diff
from dp2ddp.report.charts import Chart, sample
from dp2ddp.report.comparison import Report, facts, headline
from dp2ddp.report.comparison_json import document
from dp2ddp.report.figures import charts, sentences
from dp2ddp.report.table import steps_csv
from dp2ddp.verify.compare import Comparison
from dp2ddp.verify.outputs import FileDifference
from dp2ddp.verify.verdict import Verdict

_MOST_LINES = 400  # of a diff of what was printed


@dataclass(frozen=True)
class _Part:
    """What the page says about one number of devices."""

    verdict: Verdict
    facts: tuple[tuple[str, str, bool], ...]
    charts: tuple[Chart, ...]
    printed: tuple[DiffLine, ...]
    files: tuple[FileDifference, ...]
    sentences: tuple[str, ...]
    csv: str  # a data URL; "" without steps


def page(report: Report) -> str:
    """The whole file."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("dp2ddp.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    script = _text("page.js")
    template = environment.get_template("page.html.j2")
    return template.render(
        report=report,
        verdict_words=headline(report).partition(" ")[2],
        parts=[_part(verdict) for verdict in report.verdicts],
        changes=[(change, diff_lines(change)) for change in report.changes],
        document=_json(document(report)),
        style=Markup(_text("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sample=sample,
        amount=_amount,
        causes=next((verdict.causes for verdict in report.verdicts if verdict.causes), ()),
        points=lambda chart: _json(chart.points),
    )


def _text(name: str) -> str:
    """Of a file beside this one."""
    return files("dp2ddp.report").joinpath(name).read_text(encoding="utf-8")


def _part(verdict: Verdict) -> _Part:
    return _Part(
        verdict=verdict,
        facts=tuple(facts(verdict)),
        charts=tuple(charts(verdict)),
        sentences=tuple(sentences(verdict)),
        printed=_printed(verdict),
        files=verdict.files.different,
        csv=_data_url(steps_csv(verdict)),
    )


def _amount(comparison: Comparison) -> str:
    if comparison.identical:
        return "the same bits"
    return f"{comparison.largest.size:.1e}" if comparison.largest else "-"


def _printed(verdict: Verdict) -> tuple[DiffLine, ...]:
    """Around the first line that is not the same; nothing where all are."""
    if verdict.stdout.first is None:
        return ()
    skipped = max(verdict.stdout.first[0] - 20, 0)
    texts = ["\n".join(text.splitlines()[skipped : skipped + _MOST_LINES]) for text in verdict.printed]
    return tuple(_moved(text_diff(*texts), skipped))


def _moved(lines: tuple[DiffLine, ...], by: int) -> Iterator[DiffLine]:
    for line in lines:
        yield DiffLine(
            line.kind, line.text, line.old + by if line.old else 0, line.new + by if line.new else 0
        )


def _data_url(text: str) -> str:
    if not text:
        return ""
    return "data:text/csv;charset=utf-8," + urllib.parse.quote(text, safe=",.+-:()[]/ ")


def _json(data: Any) -> Markup:
    """In few letters, and unable to end the element it stands in, whatever names and lines it holds."""
    document = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        document = document.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(document)
