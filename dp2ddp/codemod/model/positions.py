"""Where a node stands in the text: `ast` counts lines and UTF-8 bytes, splicing needs characters."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.source.parsing import LINE_END


@dataclass(frozen=True)
class Span:
    """A half-open range of characters."""

    start: int
    end: int

    def holds(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


class Positions:
    """Character positions of the nodes of one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def line_starts(self) -> list[int]:
        return [0, *(match.end() for match in LINE_END.finditer(self.text))]

    def offset(self, line: int, column: int) -> int:
        """The character index of `ast`'s (line from 1, column in UTF-8 bytes)."""
        start = self.line_starts[line - 1]
        text = self.text[start : start + column]
        if text.isascii():
            return start + column
        whole = self.text[start : self.line_end(line)]
        return start + len(whole.encode()[:column].decode(errors="ignore"))

    def line_end(self, line: int) -> int:
        """Where the line's text ends, its line ending not counted."""
        start = self.line_starts[line - 1]
        return start + len(self.text[start : self.next_line(line)].rstrip("\r\n"))

    def next_line(self, line: int) -> int:
        """Where the next line starts, or the end of the text."""
        return self.line_starts[line] if line < len(self.line_starts) else len(self.text)

    def span(self, node: ast.AST) -> Span:
        """The characters of a node; decorators belong to the definition they decorate."""
        line, column, end_line, end_column = bounds(node)
        return Span(self.offset(line, column), self.offset(end_line, end_column))

    def source(self, node: ast.AST) -> str:
        span = self.span(node)
        return self.text[span.start : span.end]


def bounds(node: ast.AST) -> tuple[int, int, int, int]:
    """Line, column, end line, end column of a node (all nodes handed in are expressions, statements or keywords)."""
    line, column, end_line, end_column = (
        getattr(node, field) for field in ("lineno", "col_offset", "end_lineno", "end_col_offset")
    )
    decorators = getattr(node, "decorator_list", [])
    if decorators:
        line, column = decorators[0].lineno, decorators[0].col_offset - 1  # the @ before it
    return line, column, end_line, end_column
