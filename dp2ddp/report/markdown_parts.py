"""Markdown that says what it means, whatever a script's text holds: for comments on pull requests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from dp2ddp.report.script_changes import DiffLine, ScriptChange, diff_lines

# What Markdown or HTML would take for more than a letter; on GitHub @, # and : call people, issues, pictures and links.
_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&@$]|(?<!\w)_|_(?!\w)|#(?=\d)|:(?=[^\s\d])|^[-+#=]|(?:(?<=^\d)|(?<=^\d\d))[.)](?=\s|$)"
)
# GitHub takes 65,536 letters in one comment
_MOST_LETTERS, _WIDE = 8_000, 200  # of a difference, of a line
_MOST_CHANGES = 5  # files


def facts_table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Labels and what they stand for."""
    return ["| | |", "|---|---|", *(f"| {plain(label)} | {plain(words)} |" for label, words in rows)]


def folded_changes(changes: Sequence[ScriptChange]) -> Iterator[str]:
    """What changed in each file."""
    for change in changes[:_MOST_CHANGES]:
        yield from folded_diff(f"What changed in {change.name}", diff_lines(change))
        yield ""
    if len(changes) > _MOST_CHANGES:
        names = ", ".join(change.name for change in changes[_MOST_CHANGES:])
        yield from folded("Other files that changed: see the HTML report", [plain(names[:_MOST_LETTERS])])
        yield ""


def folded_diff(title: str, lines: Sequence[DiffLine]) -> Iterator[str]:
    """A difference that a reader opens, cut where it is long."""
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
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", " ".join(text.split()))


def _entities(text: str) -> str:
    return "".join(
        f"&#{ord(letter)};" if letter in "<>&@`*_[]\\" else letter for letter in " ".join(text.split())
    )


def inline_code(text: str) -> str:
    """A command, to be copied: nothing in it is acted upon."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{' '.join(text.split())}`"
