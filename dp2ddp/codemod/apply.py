"""Carry a plan out: every edit becomes splices on exact source positions, all other characters stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import (
    Decorate,
    DropArgument,
    InsertAfter,
    InsertBefore,
    PassTo,
    Remove,
    Replace,
    SetArgument,
    TextEdit,
)
from dp2ddp.codemod.facts.positions import Positions, Span
from dp2ddp.codemod.facts.scopes import Scopes
from dp2ddp.codemod.splices import Splice, splice_text

HOLE = re.compile(r"\{(\w+)\}")
COMMENT = re.compile(r"#[^\r\n]*")
BLANK = re.compile(r"(?:[ \t\r\n\f]|\\\r?\n|#[^\r\n]*)*")  # what may stand between two tokens inside brackets


class Editor:
    """Edits to splices, for one text."""

    def __init__(self, positions: Positions, scopes: Scopes, newline: str) -> None:
        self.positions = positions
        self.scopes = scopes
        self.newline = newline
        self.text = positions.text

    def apply(self, edits: list[TextEdit], more: list[Splice]) -> str:
        splices = [splice for edit in edits for splice in self.splices(edit)]
        return splice_text(self.text, [*more, *splices])

    def splices(self, edit: TextEdit) -> Iterator[Splice]:
        match edit:
            case Replace():
                yield self._replace(edit)
            case PassTo():
                yield from self._pass_to(edit)
            case SetArgument():
                yield self._set_argument(edit)
            case DropArgument():
                yield self._drop_argument(edit)
            case Remove():
                yield self._remove(edit.node)
            case InsertBefore():
                yield self.insert_before(edit.node, edit.code)
            case InsertAfter():
                yield self.insert_after(edit.node, edit.code)
            case Decorate():
                yield self._decorate(edit)

    def _replace(self, edit: Replace) -> Splice:
        """`{name}` in the code is a hole if the edit names a node for it."""
        pieces: list[str | Span] = []
        for index, part in enumerate(HOLE.split(edit.code)):
            pieces.append(self.positions.span(edit.holes[part]) if index % 2 else part)
        return Splice(self.positions.span(edit.node), tuple(pieces), drops=True)

    def _pass_to(self, edit: PassTo) -> Iterator[Splice]:
        function = self.positions.span(edit.node.func)
        bracket = self._opening_bracket(edit.node)
        end = self.positions.span(edit.node).end
        yield Splice(Span(function.start, function.start), (f"{edit.helper}(",))
        if _is_bare_generator(edit.node) and self.positions.span(edit.node.args[0]).start == bracket:
            yield Splice(Span(bracket, bracket), (", ",))
            yield Splice(Span(end, end), (")",))
            return
        after = bracket + 1
        comma = (
            "" if not (edit.node.args or edit.node.keywords) else "," if self.text[after] in "\r\n" else ", "
        )
        yield Splice(Span(function.end, after), (self._closing_brackets(function.end, bracket), comma))

    def _opening_bracket(self, call: ast.Call) -> int:
        """Where the bracket of a call's arguments stands; `(f)(x)` closes one before."""
        position = self.positions.span(call.func).end
        while self.text[position] != "(":
            blank = BLANK.match(self.text, position)
            assert blank is not None
            position = max(blank.end(), position + 1) if self.text[blank.end()] != "(" else blank.end()
        return position

    def _closing_brackets(self, start: int, end: int) -> str:
        return ")" * self.text[start:end].count(")")

    def _set_argument(self, edit: SetArgument) -> Splice:
        call, end = edit.node, self.positions.span(edit.node).end - 1
        given = f"{edit.keyword}={edit.code}"
        arguments = self._arguments(call)
        if not arguments:
            return Splice(Span(end, end), (given,))
        last = self._after(call, arguments, len(arguments) - 1)
        return Splice(Span(last, last), (f", {given}",))

    def _drop_argument(self, edit: DropArgument) -> Splice:
        """Together with the comma after it, or, for the last one, the comma before it."""
        call, arguments = edit.call, self._arguments(edit.call)
        index = arguments.index(edit.node)
        if index:
            start = self._after(call, arguments, index - 1)
            return Splice(Span(start, self._after(call, arguments, index)), (), drops=True)
        if len(arguments) > 1:
            following = self._before(call, arguments, 1)
            return Splice(Span(self._before(call, arguments, 0), following), (), drops=True)
        return Splice(
            Span(self._opening_bracket(call) + 1, self.positions.span(call).end - 1), (), drops=True
        )

    def _arguments(self, call: ast.Call) -> list[ast.expr | ast.keyword]:
        """In the order of the text."""
        return sorted((*call.args, *call.keywords), key=lambda node: self.positions.span(node).start)

    def _before(self, call: ast.Call, arguments: list[ast.expr | ast.keyword], index: int) -> int:
        """Where an argument starts, brackets around it included."""
        if not index:
            return self._behind_blanks(self._opening_bracket(call) + 1)
        comma = self._behind_blanks(self._after(call, arguments, index - 1))
        return self._behind_blanks(comma + 1)

    def _after(self, call: ast.Call, arguments: list[ast.expr | ast.keyword], index: int) -> int:
        """Where an argument ends, brackets around it included."""
        span = self.positions.span(arguments[index])
        around = COMMENT.sub("", self.text[self._before(call, arguments, index) : span.start])
        position = span.end
        for _ in range(around.count("(")):
            position = self._behind_blanks(position) + 1
        return position

    def _behind_blanks(self, position: int) -> int:
        blank = BLANK.match(self.text, position)
        return blank.end() if blank else position

    def _remove(self, statement: ast.stmt) -> Splice:
        span = self.positions.span(statement)
        line_start = self.positions.line_starts[statement.lineno - 1]
        end_line = statement.end_lineno or statement.lineno
        before, after = (
            self.text[line_start : span.start],
            self.text[span.end : self.positions.line_end(end_line)],
        )
        if before.strip() or after.split("#")[0].strip() or self._fills_its_block(statement):
            return Splice(span, ("pass",), drops=True)
        return Splice(Span(line_start, self.positions.next_line(end_line)), (), drops=True)

    def _fills_its_block(self, statement: ast.stmt) -> bool:
        parent = self.scopes.parents[statement]
        blocks = (getattr(parent, name, []) for name in ("body", "orelse", "finalbody"))
        return any(isinstance(block, list) and block == [statement] for block in blocks)

    def insert_before(self, statement: ast.stmt, code: str) -> Splice:
        """Above the comment that belongs to the statement; at module level with empty lines around it."""
        indent = self.indent(statement)
        if indent is None:  # `if x: f()` or `a; b`
            start = self.positions.span(statement).start
            return Splice(Span(start, start), (f"{code}; ",), leads=True)
        start = self.positions.above_comments(_first_line(statement), indent)
        above = self.text[:start].rpartition(self.newline)[0].rpartition(self.newline)[2]
        before = self.newline if not indent and above.strip() else ""
        gap = "" if indent else self.newline
        return Splice(Span(start, start), (f"{before}{indent}{code}{self.newline}{gap}",), leads=True)

    def insert_after(self, statement: ast.stmt, code: str) -> Splice:
        indent = self.indent(statement)
        end_line = statement.end_lineno or statement.lineno
        end = self.positions.span(statement).end
        if indent is None or self.text[end : self.positions.line_end(end_line)].split("#")[0].strip():
            return Splice(Span(end, end), (f"; {code}",))
        line_end = self.positions.line_end(end_line)
        return Splice(Span(line_end, line_end), (f"{self.newline}{indent}{code}",), leads=True)

    def _decorate(self, edit: Decorate) -> Splice:
        start = self.positions.span(edit.node).start  # of `class`: decorators stand above
        blanks = self.text[self.positions.line_starts[edit.node.lineno - 1] : start]
        return Splice(Span(start, start), (f"{edit.code}{self.newline}{blanks}",), leads=True)

    def indent(self, statement: ast.stmt) -> str | None:
        """The blanks before a statement; None if something else stands before it on its line."""
        start = self.positions.span(statement).start
        line_start = self.positions.line_starts[_first_line(statement) - 1]
        before = self.text[line_start:start]
        return before if not before.strip() else None


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return decorators[0].lineno if decorators else statement.lineno


def _is_bare_generator(call: ast.Call) -> bool:
    return len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.GeneratorExp)
