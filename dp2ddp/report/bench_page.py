"""The result of `bench` as one HTML file, in the design of verify's page."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from markupsafe import Markup

from dp2ddp.bench.result import Benchmark
from dp2ddp.report.bench import NAMES, headline, notes, rows
from dp2ddp.report.bench_charts import bars, speeds, step_chart
from dp2ddp.report.bench_json import document
from dp2ddp.report.charts import sample
from dp2ddp.report.page import environment, in_page, text_of


def page(found: Benchmark) -> str:
    """The whole file."""
    script = text_of("page.js")
    return (
        environment()
        .get_template("bench.html.j2")
        .render(
            found=found,
            names=NAMES,
            look=_look(found),
            parts=[_part(found, place) for place in range(len(found.measured))],
            speeds=speeds(found) if found.measured else None,
            notes=list(notes(found)),
            document=in_page(document(found)),
            style=Markup(text_of("page.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            sample=sample,
            points=lambda chart: in_page(chart.points),
        )
    )


def _look(found: Benchmark) -> str:
    """As verify's page looks for it: a class of page.css."""
    if found.failure:
        return "failed"
    different = any(one.sameness.proof == "different" for one in found.measured)
    return "different" if different else "same"


def _part(found: Benchmark, place: int) -> dict[str, Any]:
    """What the page says about one number of devices."""
    one = found.measured[place]
    return {
        "one": one,
        "headline": headline(found, one),
        "rows": rows(one),
        "bars": tuple(bars(one)),
        "steps": step_chart(one),
    }
