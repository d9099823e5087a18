"""The result of `verify` for a pull request: verdict, a table of facts, causes; the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.comparison.causes.cause import Cause
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.comparison import Judged, Report, facts, headline
from dp2ddp.report.markdown_parts import facts_table, folded, folded_changes, folded_diff, plain
from dp2ddp.report.script_changes import printed_diff

_MOST_LINES, _MOST_FILES = 100, 30
_MARKS = {"SAME": "✅", "DIFFERENT": "❌", "FAILED": "⚠️"}


def markdown(report: Report) -> str:
    """The whole text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    word, _, rest = headline(report).partition(" ")
    yield f"## {_MARKS[word]} {word}: {plain(rest)}"
    if report.failure:
        yield ""
        first, *positions = report.failure.splitlines()
        yield f"**It ended early:** {plain(first)}"
        yield ""
        yield from (f"- {plain(position)}" for position in positions)
    for verdict in report.verdicts:
        yield ""
        yield from _verdict(verdict)
    yield ""
    yield from folded_changes(report.changes)
    yield from _surroundings(report)


_JUDGED = {Judged.GOOD: "ok", Judged.BAD: "**no**", Judged.SHOWN: "–"}


def _verdict(verdict: Verdict) -> Iterator[str]:
    devices = f"{verdict.world} device{'' if verdict.world == 1 else 's'}"
    yield f"### {'✅' if verdict.same else '❌'} {devices}"
    yield ""
    yield "| | of | found |"
    yield "|---|---|---|"
    yield from (
        f"| {_JUDGED[judged]} | {plain(label)} | {plain(text)} |" for label, text, judged in facts(verdict)
    )
    for number, cause in enumerate(verdict.causes):
        yield ""
        yield f"**{'Or' if number else 'Likely cause'}: {plain(cause.title)}**"
        yield ""
        yield from _about(cause)
    printed = printed_diff(verdict, before=10, most=_MOST_LINES)
    if printed:
        yield ""
        yield from folded_diff("Difference of what was printed", printed)
    if verdict.files.different:
        shown = [f"- {plain(each.path)} {plain(each.what)}" for each in verdict.files.different[:_MOST_FILES]]
        more = len(verdict.files.different) - len(shown)
        yield ""
        yield from folded("Files left behind", shown + [f"- {more} more"] * bool(more))


def _about(cause: Cause) -> Iterator[str]:
    yield from (f"- {plain(each)}" for each in cause.evidence)
    yield f"- **what to change:** {plain(cause.advice)}"
    yield from (f"- edit of dp2ddp: {plain(each)}" for each in cause.edits)


def _surroundings(report: Report) -> Iterator[str]:
    convert = [("convert", report.convert)] if report.convert else []
    rows = [*convert, ("launch", report.launch), ("took", f"{report.seconds:.1f} s"), *report.surroundings]
    yield from folded("Environment", facts_table(rows))
