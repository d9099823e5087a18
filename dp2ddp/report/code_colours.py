"""Python text in colours: comments, strings, keywords, numbers; and what of a changed line is not in the other one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Token, is_token_subtype

_KINDS = (
    (Token.Comment, "comment"),
    (Token.Literal.String, "string"),
    (Token.Literal.Number, "number-ink"),
    (Token.Keyword, "keyword"),
    (Token.Operator.Word, "keyword"),
    (Token.Name.Builtin, "builtin"),
)
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_PAIRS = 2_000  # lines times lines of a block: each pair is compared
_ALIKE = 0.5  # share of words that two versions of a line have in common


@dataclass(frozen=True)
class Stretch:
    """A part of a line: its first character, the one behind it, and what it is."""

    start: int
    end: int
    kind: str


def stretches_of(text: str) -> dict[int, list[Stretch]]:
    """What stands where, by lines from 1, as Pygments sees it; {} where it counts lines otherwise than `splitlines`."""
    by_line: dict[int, list[Stretch]] = {}
    if "\n".join(text.splitlines()) != text.removesuffix("\n"):  # form feeds and the like
        return {}
    line, start = 1, 0
    for token, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        kind = next((name for ancestor, name in _KINDS if is_token_subtype(token, ancestor)), "")
        for part in value.splitlines(keepends=True):
            end = start + len(part.removesuffix("\n"))
            if kind and end > start:
                by_line.setdefault(line, []).append(Stretch(start, end, kind))
            line, start = (line + 1, 0) if part.endswith("\n") else (line, end)
    return by_line


def changed_parts(gone: Sequence[str], new: Sequence[str]) -> tuple[list[list[Stretch]], list[list[Stretch]]]:
    """For each line of either version what is not in the line that is most like it; nothing where none is like it."""
    if len(gone) * len(new) > _MOST_PAIRS:
        return [[] for _ in gone], [[] for _ in new]
    of_gone: list[list[Stretch]] = [[] for _ in gone]
    of_new: list[list[Stretch]] = [[] for _ in new]
    first = 0
    for at, line in enumerate(new):
        alike = [
            (_matcher(other, line).ratio(), -place) for place, other in enumerate(gone) if place >= first
        ]
        ratio, place = max(alike, default=(0.0, 0))
        if ratio < _ALIKE or not line.strip():
            continue
        first = 1 - place
        other = gone[-place]
        opcodes = [opcode for opcode in _matcher(other, line).get_opcodes() if opcode[0] != "equal"]
        of_gone[-place] = _changed(other, [(i1, i2) for _, i1, i2, _, _ in opcodes])
        of_new[at] = _changed(line, [(j1, j2) for _, _, _, j1, j2 in opcodes])
    return of_gone, of_new


def _matcher(a: str, b: str) -> difflib.SequenceMatcher[str]:
    return difflib.SequenceMatcher(None, _WORDS.findall(a), _WORDS.findall(b), autojunk=False)


def _changed(line: str, ranges: Iterable[tuple[int, int]]) -> list[Stretch]:
    """Characters of ranges of words."""
    starts = [0]
    for word in _WORDS.findall(line):
        starts.append(starts[-1] + len(word))
    return [Stretch(starts[start], starts[end], "changed") for start, end in ranges if start < end]


def painted(line: str, stretches: Sequence[Stretch], changed: Sequence[Stretch] = ()) -> Markup:
    """The line as HTML, escaped: stretches with classes, changed parts in <mark>."""
    edges = {0, len(line)} | {
        edge for stretch in (*stretches, *changed) for edge in (stretch.start, stretch.end)
    }
    edges = {edge for edge in edges if edge <= len(line)}
    cuts = sorted(edges)
    return Markup("").join(
        _piece(line[start:end], _over(stretches, start), bool(_over(changed, start)))
        for start, end in zip(cuts, cuts[1:], strict=False)
    )


def _over(stretches: Iterable[Stretch], place: int) -> str:
    return next((stretch.kind for stretch in stretches if stretch.start <= place < stretch.end), "")


def _piece(text: str, kind: str, changed: bool) -> Markup:
    inside = Markup('<span class="{}">{}</span>').format(kind, text) if kind else escape(text)
    return Markup("<mark>{}</mark>").format(inside) if changed else inside
