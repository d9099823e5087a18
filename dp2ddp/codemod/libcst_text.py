"""What libcst would not print as it reads it, spelled in a way that it keeps, and spelled back afterwards.

Seen with libcst 1.9: a form feed before a statement and a line of nothing but a backslash above one are lost (each
becomes a comment line while the tree is edited), and so are some of the lines behind the last statement if one of them
begins with a blank. And `async=True`, an argument of old versions of torch, is no Python any more.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.model.positions import Positions
from dp2ddp.source.parsing import ASYNC_ARGUMENT, STAND_IN, async_arguments

_LINE = r"(?:^|(?<=\r)(?!\n))"  # where a line begins; to `re`, a lone carriage return ends none
_BEFORE_STATEMENT = re.compile(rf"(?:{_LINE}[ \t\f]*\\(?:\r\n|\r|\n))*{_LINE}[ \t\f]*\Z", re.MULTILINE)
_BACKSLASH = re.compile(rf"{_LINE}[ \t\f]*\\(?=\r|\n)", re.MULTILINE)
_ODD = re.compile(rf"\f|{_BACKSLASH.pattern}", re.MULTILINE)
_BEFORE_CLAUSE = re.compile(
    rf"{_LINE}[ \t]*\f[ \t\f]*(?=(?:else|finally|case)\b)", re.MULTILINE
)  # `ast` has no nodes for these
_ODD_TAIL = re.compile(rf"{_LINE}[ \t\f\\]", re.MULTILINE)
_MARK = "#dp2ddp\ue0dd"


def is_stand_in(comment: str) -> bool:
    """Whether a comment stands for what is before the statement in the next line."""
    return comment.startswith(_MARK) and comment.endswith(";")


@dataclass(frozen=True)
class _StandIn:
    start: int
    end: int
    text: str


class LibcstText:
    """A text as libcst keeps it, and the way back."""

    def __init__(self, text: str, tree: ast.Module, positions: Positions) -> None:
        end = positions.next_line(tree.body[-1].end_lineno or 1) if tree.body else 0
        self._tail = text[end:] if _ODD_TAIL.search(text, end) else ""
        body = text[: len(text) - len(self._tail)]
        self._stand_ins = _stand_ins(body, tree, positions) if _ODD.search(body) else []
        self._prefixes = [text[node.start : node.end] for node in self._stand_ins]
        self._starts = [node.start for node in self._stand_ins]
        pieces: list[str] = []
        at = 0
        for node in self._stand_ins:
            pieces += [body[at : node.start], node.text]
            at = node.end
        self.text = "".join([*pieces, body[at:]])
        self._has_async = (
            STAND_IN not in text and bool(ASYNC_ARGUMENT.search(text)) and any(async_arguments(tree))
        )
        if self._has_async:
            self.text = ASYNC_ARGUMENT.sub(STAND_IN, self.text)

    def offset(self, position: int) -> int:
        """Where a position of the text lies in the spelled one."""
        before = self._stand_ins[: bisect_right(self._starts, position)]
        return position + sum(len(node.text) - (node.end - node.start) for node in before)

    def restored(self, text: str) -> str:
        """A printed text with everything as it was."""
        for number, prefix in enumerate(self._prefixes):
            mark = re.compile(
                rf"{_LINE}[ \t]*{_MARK}{number}(?:;(?:\r\n|\r|\n)[ \t]*|[.](?:\r\n|\r|\n))", re.MULTILINE
            )
            text = mark.sub(lambda _, prefix=prefix: prefix, text, count=1)  # type: ignore[misc]
        if self._has_async:
            text = text.replace(STAND_IN, "async")
        return text + self._tail


def _stand_ins(text: str, tree: ast.Module, positions: Positions) -> list[_StandIn]:
    newline = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    statements = set(_odd_beginnings(text, tree, positions))
    stand_ins: list[_StandIn] = []
    for line, start in sorted({*statements, *_lone_backslashes(text, tree, positions)}):
        if start <= len(text) and (not stand_ins or line >= stand_ins[-1].end):
            end = f";{newline}{_indent(text[line:start])}" if (line, start) in statements else f".{newline}"
            stand_ins.append(_StandIn(line, start, f"{_MARK}{len(stand_ins)}{end}"))
    return stand_ins


def _indent(prefix: str) -> str:
    """What Python takes for the indentation of a statement: up to a backslash, and behind a form feed."""
    return prefix.split("\\")[0].split("\f")[-1].rstrip("\r\n")


def _odd_beginnings(text: str, tree: ast.Module, positions: Positions) -> Iterator[tuple[int, int]]:
    """What stands before statements, from the beginning of its first line, where it is odd."""
    for start in {positions.offset(*place) for place in _beginnings(tree)}:
        line = _line_start(positions, start)
        while line and text[:line].rstrip("\r\n").endswith("\\"):
            line = _line_start(positions, line - 1)
        prefix = text[line:start]
        if _BEFORE_STATEMENT.match(prefix) and ("\f" in prefix or "\\" in prefix):
            yield line, start
    yield from (match.span() for match in _BEFORE_CLAUSE.finditer(text))


def _lone_backslashes(text: str, tree: ast.Module, positions: Positions) -> Iterator[tuple[int, int]]:
    """Lines of nothing but a backslash, between statements."""
    inside = {line for node in ast.walk(tree) if isinstance(node, ast.stmt) for line in _lines(node)}
    for match in _BACKSLASH.finditer(text):
        line = bisect_right(positions.line_starts, match.start())
        if line not in inside:
            yield match.start(), positions.next_line(line)


def _lines(statement: ast.stmt) -> range:
    """The lines of a statement, of a compound one those before its body."""
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, last + 1)


def _line_start(positions: Positions, position: int) -> int:
    return positions.line_starts[bisect_right(positions.line_starts, position) - 1]


def _beginnings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Line and column of each statement, decorators included, and of `except`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            yield node.lineno, node.col_offset
        for decorator in getattr(node, "decorator_list", ()):
            yield decorator.lineno, decorator.col_offset - 1
