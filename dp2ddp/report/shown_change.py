"""A changed file as a page shows it: coloured lines, in hunks with their reasons beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from dp2ddp.report.script_changes import DiffLine, ReasonOfLine, ScriptChange, diff_lines

_KINDS = {"gone": "changed", "new": "changed", "reason": "reason"}


@dataclass(frozen=True)
class ShownLine:
    """A line of a difference; `old` and `new` are its numbers, 0 where it is not."""

    kind: str  # same, gone, new, gap
    text: Markup
    old: int
    new: int


@dataclass(frozen=True)
class Hunk:
    """Lines that belong together, and why they changed."""

    lines: tuple[ShownLine, ...]
    reasons: tuple[ReasonOfLine, ...] = ()


def hunks(change: ScriptChange) -> Iterator[Hunk]:
    """In colours; none where nothing changed."""
    old, new = coloured(change.before), coloured(change.after)
    blocks = [(kind, list(block)) for kind, block in groupby(diff_lines(change), _kind)]
    for (kind, block), (_, following) in zip(blocks, [*blocks[1:], ("", [])], strict=True):
        if kind != "reason":
            reasons = tuple(line.reason for line in following if line.reason)
            yield Hunk(tuple(_shown(line, old, new) for line in block), reasons)


def _kind(line: DiffLine) -> str:
    return _KINDS.get(line.kind, "same")


def _shown(line: DiffLine, old: Sequence[Markup], new: Sequence[Markup]) -> ShownLine:
    if line.kind == "gap":
        return ShownLine("gap", Markup(""), line.old, line.new)
    text = new[line.new - 1] if line.new else old[line.old - 1]
    return ShownLine(line.kind, text, line.old, line.new)


def coloured(text: str) -> list[Markup]:
    """The lines of Python as HTML, escaped; without colours where Pygments counts lines otherwise than `splitlines`."""
    lines = text.splitlines()
    lexer, formatter = (
        PythonLexer(stripnl=False, ensurenl=False),
        HtmlFormatter(nowrap=True, classprefix="py-"),
    )
    html = highlight(text, lexer, formatter).split("\n")
    if "\n".join(lines) != text.removesuffix("\n"):  # form feeds and the like
        return [escape(line) for line in lines]
    return [Markup(line) for line in html[: len(lines)]]
