"""The result of `bench` as one HTML file, in the design of verify's page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dp2ddp.costs.result import Benchmark
from dp2ddp.report.bench_charts import bars, speeds, step_chart
from dp2ddp.report.bench_json import document
from dp2ddp.report.bench_text import NAMES, headline, notes, rows
from dp2ddp.report.charts import sample
from dp2ddp.report.pages import rendered


def page(benchmark: Benchmark) -> str:
    """The whole file."""
    convert = (("convert", benchmark.convert),) if benchmark.convert else ()
    took = ("took", f"{benchmark.seconds:.1f} s")
    return rendered(
        "bench.html.j2",
        "bench",
        title=benchmark.port or benchmark.script,
        look=_look(benchmark),
        places=list(_places(benchmark)),
        document=document(benchmark),
        found=benchmark,
        names=NAMES,
        parts=[_part(benchmark, place) for place in range(len(benchmark.measured))],
        speeds=speeds(benchmark) if benchmark.measured else None,
        notes=list(notes(benchmark)),
        surroundings=(*convert, ("launch", benchmark.launch), took, *benchmark.surroundings),
        sample=sample,
    )


def _places(benchmark: Benchmark) -> Iterator[tuple[str, str]]:
    for measured in benchmark.measured:
        yield f"w{measured.world}", f"{measured.world} device{'' if measured.world == 1 else 's'}"
    yield "surroundings", "Environment"


def _look(benchmark: Benchmark) -> str:
    """As verify's page looks for it: a class of page.css."""
    if benchmark.failure:
        return "failed"
    different = any(measured.sameness.proof == "different" for measured in benchmark.measured)
    return "different" if different else "same"


def _part(benchmark: Benchmark, place: int) -> dict[str, Any]:
    """What the page says about one number of devices."""
    measured = benchmark.measured[place]
    return {
        "measured": measured,
        "headline": headline(benchmark, measured),
        "rows": rows(measured),
        "bars": tuple(bars(measured)),
        "steps": step_chart(measured),
    }
