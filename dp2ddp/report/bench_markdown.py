"""The result of `bench` for a pull request: a table for each number of devices; how it was measured is folded."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.costs.result import Benchmark, Measured
from dp2ddp.report.bench_text import NAMES, headline, notes, rows
from dp2ddp.report.markdown_parts import facts_table, folded, plain

_MARKS = {"same": "✅", "different": "❌", "not verified": "–"}


def markdown(benchmark: Benchmark) -> str:
    """The whole text."""
    return "\n".join(_lines(benchmark)) + "\n"


def _lines(benchmark: Benchmark) -> Iterator[str]:
    yield f"## dp2ddp bench: {plain(benchmark.port or benchmark.script)}"
    if benchmark.failure:
        yield ""
        yield f"**It ended early:** {plain(benchmark.failure.splitlines()[0])}"
    for measured in benchmark.measured:
        yield ""
        yield from _measured(benchmark, measured)
    yield ""
    yield from (f"- {plain(note)}" for note in notes(benchmark))
    yield ""
    convert = [("convert", benchmark.convert)] if benchmark.convert else []
    table = [
        *convert,
        ("launch", benchmark.launch),
        ("took", f"{benchmark.seconds:.1f} s"),
        *benchmark.surroundings,
    ]
    yield from folded("Environment", facts_table(table))


def _measured(benchmark: Benchmark, measured: Measured) -> Iterator[str]:
    yield f"### {plain(headline(benchmark, measured))}"
    yield ""
    yield f"| | {NAMES['dp']} | {NAMES['ddp']} |"
    yield "|---|---|---|"
    for row in rows(measured):
        label = f"&nbsp;&nbsp;{plain(row.label)}" if row.label.startswith(" ") else plain(row.label)
        yield f"| {label} | {plain(row.dp)} | {plain(row.ddp)} |"
    yield f"| training | | {_MARKS[measured.sameness.proof]} {plain(measured.sameness.words)} |"
