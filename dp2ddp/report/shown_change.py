"""A changed file as a page shows it: coloured lines, in hunks with their reasons beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from dp2ddp.report.script_changes import DiffLine, ReasonOfLine, ScriptChange, diff_lines


@dataclass(frozen=True)
class Hunk:
    """Lines that belong together, and why they changed."""

    lines: tuple[DiffLine, ...]  # whose text is Markup
    reasons: tuple[ReasonOfLine, ...] = ()


def hunks(change: ScriptChange) -> Iterator[Hunk]:
    """In colours; none where nothing changed."""
    old, new = coloured(change.before), coloured(change.after)
    kinds = {"gone": "changed", "new": "changed", "reason": "reason"}
    lines = groupby(diff_lines(change), lambda line: kinds.get(line.kind, "same"))
    blocks = [(kind, list(block)) for kind, block in lines]
    for (kind, block), (_, following) in zip(blocks, [*blocks[1:], ("", [])], strict=True):
        if kind != "reason":
            reasons = tuple(line.reason for line in following if line.reason)
            yield Hunk(tuple(replace(line, text=_coloured(line, old, new)) for line in block), reasons)


def _coloured(line: DiffLine, old: Sequence[Markup], new: Sequence[Markup]) -> Markup:
    if line.kind == "gap":
        return Markup("")
    return new[line.new - 1] if line.new else old[line.old - 1]


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
