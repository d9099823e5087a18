"""The result of `bench` for a pull request: a table for each number of devices; how it was measured is folded."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.bench.result import Benchmark, Measured
from dp2ddp.report.bench import NAMES, headline, notes, rows
from dp2ddp.report.markdown import folded, plain

_MARKS = {"same": "✅", "different": "❌", "not verified": "–"}


def markdown(found: Benchmark) -> str:
    """The whole text."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Benchmark) -> Iterator[str]:
    yield f"## dp2ddp bench: {plain(found.port or found.script)}"
    if found.failure:
        yield ""
        yield f"**It ended early:** {plain(found.failure.splitlines()[0])}"
    for one in found.measured:
        yield ""
        yield from _measured(found, one)
    yield ""
    yield from (f"- {plain(note)}" for note in notes(found))
    yield ""
    convert = [("convert", found.convert)] if found.convert else []
    table = [*convert, ("launch", found.launch), ("took", f"{found.seconds:.1f} s"), *found.surroundings]
    lines = ["| | |", "|---|---|", *(f"| {plain(label)} | {plain(words)} |" for label, words in table)]
    yield from folded("Environment", lines)


def _measured(found: Benchmark, one: Measured) -> Iterator[str]:
    yield f"### {plain(headline(found, one))}"
    yield ""
    yield f"| | {NAMES['dp']} | {NAMES['ddp']} |"
    yield "|---|---|---|"
    for row in rows(one):
        label = f"&nbsp;&nbsp;{plain(row.label)}" if row.label.startswith(" ") else plain(row.label)
        yield f"| {label} | {plain(row.dp)} | {plain(row.ddp)} |"
    yield f"| training | | {_MARKS[one.sameness.proof]} {plain(one.sameness.words)} |"
