"""Statements that come, go and move inside a block, with the comments and empty lines between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
EMPTY = cst.EmptyLine(indent=False)


@dataclass(frozen=True)
class Before:
    """Code for the lines before a statement."""

    code: str
    apart: bool  # at the top of a module, with empty lines around it


@dataclass
class Around:
    """What edits want of one statement."""

    before: list[Before] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    removed: bool = False
    alone: bool = False  # nothing else stands in its block


@dataclass(frozen=True)
class Guarded:
    """Statements, by the ids of the first and the last, under a condition."""

    first: int
    last: int
    test: str


@dataclass(frozen=True)
class Added:
    """Statements for the top of the module, behind the statement with this id (None: before the first one)."""

    statements: tuple[Statement, ...]
    footer: tuple[cst.EmptyLine, ...]  # comments behind the last of them
    behind: int | None


@dataclass(frozen=True)
class _Line:
    """A line or a compound statement of a block; None: it went, and left the lines above it."""

    statement: Statement | None
    ids: frozenset[int] = frozenset()
    left: tuple[cst.EmptyLine, ...] = ()


class Blocks:
    """The blocks of a module with the statements that edits are about."""

    def __init__(self, around: Mapping[int, Around], guarded: Sequence[Guarded], added: Added | None) -> None:
        self.around = around
        self.guarded = guarded
        self.added = added
        self._first = {node.first for node in guarded}
        self._last = {node.last for node in guarded} | ({added.behind} if added and added.behind else set())

    def module(self, old: cst.Module, new: cst.Module) -> cst.Module:
        lines = self._lines(old.body, new.body, at_top=True)
        lines = [*lines, _Line(None, left=tuple(new.footer))]
        if self.added:
            lines = self._with_added(lines, self.added)
        body, footer = _settled(lines)
        return new.with_changes(body=body, footer=footer)

    def block(self, old: cst.IndentedBlock, new: cst.IndentedBlock) -> cst.IndentedBlock:
        body, rest = _settled(self._lines(old.body, new.body, at_top=False))
        if not body:
            body, rest = [cst.SimpleStatementLine([cst.Pass()], leading_lines=rest)], ()
        return new.with_changes(body=body, footer=(*rest, *new.footer))

    def suite(self, old: cst.SimpleStatementSuite, new: cst.SimpleStatementSuite) -> cst.BaseSuite:
        """`if x: f()` becomes a block where a statement comes or goes."""
        if not self._is_meant(old.body):
            return new
        line = cst.SimpleStatementLine(new.body, trailing_whitespace=new.trailing_whitespace)
        before = self.around.get(id(old.body[0]), Around()).before
        lines = self._guard([*_in_place(each.code for each in before), *self._unfolded(old.body, line)])
        return cst.IndentedBlock(_settled(lines)[0] or [cst.SimpleStatementLine([cst.Pass()])])

    def _is_meant(self, statements: Sequence[cst.BaseSmallStatement]) -> bool:
        """Whether edits are about one of these."""
        return not {*map(id, statements)}.isdisjoint(self.around.keys() | self._first | self._last)

    def _lines(
        self, old: Sequence[cst.BaseStatement], new: Sequence[cst.BaseStatement], at_top: bool
    ) -> list[_Line]:
        lines: list[_Line] = []
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            is_head = at_top and index == 0
            if isinstance(was, cst.SimpleStatementLine):
                assert isinstance(now, cst.SimpleStatementLine)
                lines += self._simple(was, now, at_top, is_head)
            else:
                assert isinstance(now, cst.BaseCompoundStatement)
                lines += self._compound(was, now, at_top, is_head)
        return self._guard(lines)

    def _compound(
        self, was: cst.BaseStatement, now: cst.BaseCompoundStatement, at_top: bool, is_head: bool
    ) -> list[_Line]:
        around, ids = self.around.get(id(was)), frozenset({id(was)})
        if around is None:
            return [_Line(now, ids)]
        return [*_before(around.before, now, ids, at_top, is_head), *_in_place(around.after)]

    def _simple(
        self, was: cst.SimpleStatementLine, now: cst.SimpleStatementLine, at_top: bool, is_head: bool
    ) -> list[_Line]:
        ids = [*map(id, was.body)]
        first = self.around.get(ids[0], Around())
        before = first.before
        begins, ends = self._first | self.around.keys(), self._last
        if begins.isdisjoint(ids[1:]) and ends.isdisjoint(ids[:-1]) and not first.removed and not first.after:
            # lines above it are all that comes, if any
            return _before(before, now, frozenset(ids), at_top, is_head)
        own, *others = self._unfolded(was.body, now)
        if own.statement is None:
            return [*_in_place(each.code for each in before), own, *others]
        return [*_before(before, own.statement, own.ids, at_top, is_head), *others]

    def _unfolded(self, old: Sequence[cst.BaseSmallStatement], line: cst.SimpleStatementLine) -> list[_Line]:
        """The statements of a line (`a = 1; b = 2`), each on its own, with what comes between them and behind."""
        lines: list[_Line] = []
        for index, (was, now) in enumerate(zip(old, line.body, strict=True)):
            around, ids = self.around.get(id(was), Around()), frozenset({id(was)})
            leading = () if index else tuple(line.leading_lines)
            lines += _in_place(each.code for each in around.before if index)
            if around.removed and not around.alone:
                lines.append(_Line(None, ids, leading))
            else:
                small = (
                    cst.Pass() if around.removed else now.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
                )
                ending = line.trailing_whitespace if index == len(old) - 1 else cst.TrailingWhitespace()
                lines.append(_Line(cst.SimpleStatementLine([small], leading, ending), ids))
            lines += _in_place(around.after)
        return lines

    def _guard(self, lines: list[_Line]) -> list[_Line]:
        for node in self.guarded:
            first = next((index for index, line in enumerate(lines) if node.first in line.ids), None)
            last = next((index for index, line in enumerate(lines) if node.last in line.ids), None)
            if first is not None and last is not None:
                lines = [*lines[:first], _under(node.test, lines[first : last + 1]), *lines[last + 1 :]]
        return lines

    def _with_added(self, lines: list[_Line], added: Added) -> list[_Line]:
        new = [_Line(statement) for statement in added.statements]
        at = next((index for index, line in enumerate(lines) if added.behind in line.ids), -1) + 1
        if not at and lines[0].statement is not None:
            above, own = _split(lines[0].statement.leading_lines, is_head=True)
            if above and above[-1] is EMPTY:  # before a line that comes, too
                above, own = above[:-1], (EMPTY, *own)
            new[0] = _with_leading(new[0], (*above, *added.statements[0].leading_lines))
            lines = [_with_leading(lines[0], own), *lines[1:]]
        following = lines[at]
        below = following.left if following.statement is None else following.statement.leading_lines
        if below or following.statement is not None:
            below = _apart(below)
        following = _with_leading(following, (*added.footer, *below))
        return [*lines[:at], *new, following, *lines[at + 1 :]]


def statements(code: str) -> list[Statement]:
    """The statements of a piece of code."""
    return list(cst.parse_module(code).body)


def _in_place(codes: Iterable[str]) -> list[_Line]:
    return [_Line(statement) for code in codes for statement in statements(code)]


def _before(
    new: Sequence[Before], own: Statement, ids: frozenset[int], at_top: bool, is_head: bool
) -> list[_Line]:
    """New lines stand above the comment that belongs to the statement."""
    if not new:
        return [_Line(own, ids)]
    above, own_lines = _split(own.leading_lines, is_head)
    lines: list[_Line] = []
    for node in new:
        if not (code := cst.parse_module(node.code)).body:  # comments: they stay with the statement
            own_lines = (*(line.with_changes(indent=True) for line in code.header), *own_lines)
            continue
        first, *others = code.body
        follows = bool(lines or above or not is_head) and not (above and above[-1].comment is None)
        if at_top and node.apart and follows:
            above = (*above, EMPTY)
        lines += [_with_leading(_Line(first), above), *map(_Line, others)]
        above = (EMPTY,) if at_top and node.apart else ()
    return [*lines, _with_leading(_Line(own, ids), (*above, *own_lines))]


def _split(
    lines: Sequence[cst.EmptyLine], is_head: bool
) -> tuple[tuple[cst.EmptyLine, ...], tuple[cst.EmptyLine, ...]]:
    """The lines above a statement, and the comment among them that belongs to it; the file's own comment does not."""
    at = len(lines)
    while at and _is_comment(lines[at - 1]):
        at -= 1
    if is_head and not at:
        at = len(lines)
    return tuple(lines[:at]), tuple(lines[at:])


def _is_comment(line: cst.EmptyLine) -> bool:
    return line.comment is not None and line.indent and not line.whitespace.value


def _apart(lines: Sequence[cst.EmptyLine]) -> tuple[cst.EmptyLine, ...]:
    """With an empty line before what follows."""
    return tuple(lines) if lines and not _is_comment(lines[0]) else (EMPTY, *lines)


def _with_leading(line: _Line, leading: Sequence[cst.EmptyLine]) -> _Line:
    """With other lines above it, or in its place."""
    if line.statement is None:
        return replace(line, left=tuple(leading))
    return replace(line, statement=line.statement.with_changes(leading_lines=tuple(leading)))


def _settled(lines: Iterable[_Line]) -> tuple[list[Statement], tuple[cst.EmptyLine, ...]]:
    """Statements, each with what those that went before it have left; and what the last ones have left."""
    body: list[Statement] = []
    left: tuple[cst.EmptyLine, ...] = ()
    for line in lines:
        if line.statement is None:
            left += line.left
            continue
        own = line.statement
        body.append(own.with_changes(leading_lines=(*left, *own.leading_lines)) if left else own)
        left = ()
    return body, left


def _under(test: str, lines: Sequence[_Line]) -> _Line:
    """Statements in a block under a condition; the comment above the first one stays above."""
    body, rest = _settled(lines)
    leading = body[0].leading_lines
    body[0] = body[0].with_changes(leading_lines=())
    deeper = [_deeper(statement) for statement in body]
    condition = cst.If(
        cst.parse_expression(test), cst.IndentedBlock(deeper, footer=rest), leading_lines=leading
    )
    return _Line(condition, frozenset().union(*(line.ids for line in lines)))


def _deeper(statement: Statement) -> Statement:
    moved = statement.visit(_NoBlanks())
    assert isinstance(moved, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
    return moved


class _NoBlanks(cst.CSTTransformer):
    """At the top of a module an empty line is as indented as all others; further in it must have no blanks."""

    def visit_ParenthesizedWhitespace(self, node: cst.ParenthesizedWhitespace) -> bool:
        return False  # these lines are laid out when they are printed

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine:
        is_empty = updated_node.comment is None and not updated_node.whitespace.value
        return updated_node.with_changes(indent=False) if is_empty else updated_node
