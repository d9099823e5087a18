"""The result of `verify` for a pull request: verdict, a table of facts, causes; the rest folded."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from dp2ddp.report.changes import DiffLine, diff_lines, printed_diff
from dp2ddp.report.comparison import Judged, Report, facts, headline
from dp2ddp.verify.causes.cause import Cause
from dp2ddp.verify.verdict import Verdict

# What Markdown or HTML would take for more than a letter; on GitHub @, # and : call people, issues, pictures and links.
_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&@$]|(?<!\w)_|_(?!\w)|#(?=\d)|:(?=[^\s\d])|^[-+#=]|(?:(?<=^\d)|(?<=^\d\d))[.)](?=\s|$)"
)
# GitHub takes 65,536 letters in one comment
_MOST_LINES, _MOST_FILES = 100, 30
_MARKS = {"SAME": "✅", "DIFFERENT": "❌", "FAILED": "⚠️"}
_MOST_LETTERS, _WIDE = 8_000, 200


def markdown(report: Report) -> str:
    """The whole text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    word, _, rest = headline(report).partition(" ")
    yield f"## {_MARKS[word]} {word}: {plain(rest)}"
    if report.failure:
        yield ""
        first, *stands = report.failure.splitlines()
        yield f"**It ended early:** {plain(first)}"
        yield ""
        yield from (f"- {plain(stand)}" for stand in stands)
    for verdict in report.verdicts:
        yield ""
        yield from _verdict(verdict)
    yield ""
    yield from _changes(report)
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
        yield from _folded_diff("Difference of what was printed", printed)
    if verdict.files.different:
        shown = [f"- {plain(each.path)} {plain(each.what)}" for each in verdict.files.different[:_MOST_FILES]]
        more = len(verdict.files.different) - len(shown)
        yield ""
        yield from folded("Files left behind", shown + [f"- {more} more"] * bool(more))


def _about(cause: Cause) -> Iterator[str]:
    yield from (f"- {plain(each)}" for each in cause.evidence)
    yield f"- **what to change:** {plain(cause.advice)}"
    yield from (f"- edit of dp2ddp: {plain(each)}" for each in cause.edits)


def _changes(report: Report) -> Iterator[str]:
    for change in report.changes:
        yield from _folded_diff(f"What changed in {change.name}", diff_lines(change))
        yield ""


def _surroundings(report: Report) -> Iterator[str]:
    convert = [("convert", report.convert)] if report.convert else []
    rows = [*convert, ("launch", report.launch), ("took", f"{report.seconds:.1f} s"), *report.surroundings]
    table = ["| | |", "|---|---|", *(f"| {plain(label)} | {plain(words)} |" for label, words in rows)]
    yield from folded("Environment", table)


def _folded_diff(title: str, lines: Sequence[DiffLine]) -> Iterator[str]:
    texts = _fitting([_diff_text(line)[:_WIDE] for line in lines])
    fence = "`" * max([3, *(len(run) + 1 for text in texts for run in re.findall("`+", text))])
    yield from folded(title, [f"{fence}diff", *texts, fence])


def _fitting(texts: list[str]) -> list[str]:
    ends = list(itertools.accumulate(len(text) + 1 for text in texts))
    kept = sum(end <= _MOST_LETTERS for end in ends)
    return (
        texts
        if kept == len(texts)
        else [*texts[:kept], f"... {len(texts) - kept} more lines: see the HTML report"]
    )


def _diff_text(line: DiffLine) -> str:
    if line.kind == "gap":
        return f"@@ line {line.old} @@"
    return {"same": " ", "gone": "-", "new": "+", "reason": "#   "}[line.kind] + line.text


def folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines that a reader opens."""
    yield f"<details><summary>{_entities(title)}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def plain(text: str) -> str:
    """Words that mean themselves, in one line."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", " ".join(text.split()))


def _entities(text: str) -> str:
    return "".join(
        f"&#{ord(letter)};" if letter in "<>&@`*_[]\\" else letter for letter in " ".join(text.split())
    )
