"""Statements that come, go and move inside a block, with the comments and empty lines between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from dp2ddp.codemod.edits import Guard, InsertAfter, InsertBefore, Remove, TextEdit
from dp2ddp.codemod.writing.tree import Tree

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
EMPTY = cst.EmptyLine(indent=False)


@dataclass(frozen=True)
class Added:
    """Statements for the top of the module, behind the statement with this id (None: before the first one)."""

    statements: Sequence[Statement]
    footer: Sequence[cst.EmptyLine]  # comments behind the last of them
    behind: int | None


@dataclass(frozen=True)
class _Line:
    """A line or a compound statement of a block; of one that went, a line of no statement has what stood above it."""

    statement: Statement
    ids: frozenset[int] = frozenset()

    @property
    def above(self) -> Sequence[cst.EmptyLine]:
        return self.statement.leading_lines

    @property
    def is_gone(self) -> bool:
        return isinstance(self.statement, cst.SimpleStatementLine) and not self.statement.body

    def below(self, *above: cst.EmptyLine) -> "_Line":
        """With other lines above it."""
        return replace(self, statement=self.statement.with_changes(leading_lines=above))


class Blocks:
    """The blocks of a module with the statements that edits are about."""

    def __init__(self, tree: Tree, edits: Mapping[int, Sequence[TextEdit]], added: Added | None) -> None:
        self.edits, self.added = edits, added
        guards = (each for of_node in edits.values() for each in of_node if isinstance(each, Guard))
        # by the ids of the first and the last statement
        self.guarded = [(id(tree.nodes[each.node]), id(tree.nodes[each.last]), each.test) for each in guards]
        # where a line begins or ends that holds several statements: `a = 1; b = 2`
        self._begins = {first for first, _, _ in self.guarded}
        self._ends = {last for _, last, _ in self.guarded}
        self._ends |= {added.behind} if added and added.behind is not None else set()
        for node, of_node in edits.items():
            self._begins |= {node for each in of_node if isinstance(each, (Remove, InsertBefore))}
            self._ends |= {node for each in of_node if isinstance(each, (Remove, InsertAfter))}

    def module(self, old: cst.Module, new: cst.Module) -> cst.Module:
        footer = _Line(cst.SimpleStatementLine([], new.footer))
        lines = [*self._lines(old.body, new.body, at_top=True), footer]
        body, rest = _settled(_with_added(lines, self.added) if self.added else lines)
        return new.with_changes(body=body, footer=rest)

    def block(self, old: cst.IndentedBlock, new: cst.IndentedBlock) -> cst.IndentedBlock:
        body, rest = _settled(self._lines(old.body, new.body))
        if not body:
            last = old.body[-1]
            assert isinstance(last, cst.SimpleStatementLine)
            body, rest = [last.with_changes(body=[cst.Pass()], leading_lines=rest)], ()
        return new.with_changes(body=body, footer=(*rest, *new.footer))

    def suite(self, old: cst.SimpleStatementSuite, new: cst.SimpleStatementSuite) -> cst.BaseSuite:
        """`if x: f()` becomes a block where a statement comes or goes."""
        if (self._begins | self._ends).isdisjoint(map(id, old.body)):
            return new
        line = cst.SimpleStatementLine(new.body, trailing_whitespace=new.trailing_whitespace)
        body, _ = _settled(self._lines([cst.SimpleStatementLine(old.body)], [line]))
        return cst.IndentedBlock(body or [cst.SimpleStatementLine([cst.Pass()])])

    def _lines(
        self, old: Sequence[cst.BaseStatement], new: Sequence[cst.BaseStatement], at_top: bool = False
    ) -> list[_Line]:
        lines: list[_Line] = []
        for was, now in zip(old, new, strict=True):
            for line in self._parts(was, now):
                edits = [edit for each in line.ids for edit in self.edits.get(each, ())]
                if any(isinstance(edit, Remove) for edit in edits):
                    line = replace(line, statement=cst.SimpleStatementLine([], line.above))
                before = [edit for edit in edits if isinstance(edit, InsertBefore)]
                lines += _before(before, line, at_top, is_head=at_top and not lines)
                for edit in edits:
                    lines += map(_Line, statements(edit.code)) if isinstance(edit, InsertAfter) else ()
        for begin, end, test in self.guarded:
            first = next((place for place, line in enumerate(lines) if begin in line.ids), None)
            last = next((place for place, line in enumerate(lines, 1) if end in line.ids), None)
            if first is not None and last is not None:
                lines[first:last] = [_under(test, lines[first:last])]
        return lines

    def _parts(self, was: cst.BaseStatement, now: cst.BaseStatement) -> Iterator[_Line]:
        """A statement, or a line of several; each of these on its own if something comes or goes between them."""
        assert isinstance(now, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        ids = [*map(id, was.body)] if isinstance(was, cst.SimpleStatementLine) else [id(was)]
        if self._begins.isdisjoint(ids[1:]) and self._ends.isdisjoint(ids[:-1]):
            yield _Line(now, frozenset(ids))
            return
        assert isinstance(now, cst.SimpleStatementLine)
        for place, (number, small) in enumerate(zip(ids, now.body, strict=True)):
            alone = small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            ending = now.trailing_whitespace if number == ids[-1] else cst.TrailingWhitespace()
            leading = () if place else now.leading_lines
            yield _Line(cst.SimpleStatementLine([alone], leading, ending), frozenset([number]))


def statements(code: str) -> Iterator[Statement]:
    """The statements of a piece of code."""
    return iter(cst.parse_module(code).body)


def _with_added(lines: list[_Line], added: Added) -> list[_Line]:
    first, *others = map(_Line, added.statements)
    at = next((place for place, line in enumerate(lines, 1) if added.behind in line.ids), 0)
    if not at and not lines[0].is_gone:
        above, own = _split(lines[0].above, is_head=True)
        if above and above[-1] is EMPTY:  # before a line that comes, too
            above, own = above[:-1], (EMPTY, *own)
        first, lines = first.below(*above, *first.above), [lines[0].below(*own), *lines[1:]]
    below = lines[at].above
    if (below or not lines[at].is_gone) and (not below or _is_comment(below[0])):
        below = (EMPTY, *below)
    return [*lines[:at], first, *others, lines[at].below(*added.footer, *below), *lines[at + 1 :]]


def _before(new: Sequence[InsertBefore], own: _Line, at_top: bool, is_head: bool) -> list[_Line]:
    """New lines stand above the comment that belongs to the statement."""
    if not new:
        return [own]
    above, comments = _split(own.above, is_head)
    lines: list[_Line] = []
    for edit in new:
        if not (code := cst.parse_module(edit.code)).body:  # comments: they stay with the statement
            comments = (*(line.with_changes(indent=True) for line in code.header), *comments)
            continue
        first, *others = map(_Line, code.body)
        follows = bool(lines or above or not is_head) and not (above and above[-1].comment is None)
        if at_top and edit.apart and follows:
            above = (*above, EMPTY)
        lines += [first.below(*above), *others]
        above = (EMPTY,) if at_top and edit.apart else ()
    return [*lines, own.below(*above, *comments)]


def _split(
    lines: Sequence[cst.EmptyLine], is_head: bool
) -> tuple[Sequence[cst.EmptyLine], Sequence[cst.EmptyLine]]:
    """The lines above a statement, and the comment among them that belongs to it; the file's own comment does not."""
    at = len(lines)
    while at and _is_comment(lines[at - 1]):
        at -= 1
    at = len(lines) if is_head and not at else at
    return lines[:at], lines[at:]


def _is_comment(line: cst.EmptyLine) -> bool:
    return line.comment is not None and line.indent and not line.whitespace.value


def _settled(lines: Iterable[_Line]) -> tuple[list[Statement], Sequence[cst.EmptyLine]]:
    """Statements, each with what those that went before it have left; and what the last ones have left."""
    body: list[Statement] = []
    left: tuple[cst.EmptyLine, ...] = ()
    for line in lines:
        left = (*left, *line.above)
        if not line.is_gone:
            body.append(line.below(*left).statement)
            left = ()
    return body, left


def _under(test: str, lines: Sequence[_Line]) -> _Line:
    """Statements in a block under a condition; the comment above the first one stays above."""
    body, rest = _settled(lines)
    leading = body[0].leading_lines
    body[0] = body[0].with_changes(leading_lines=())
    deeper = [statement.visit(_NoBlanks()) for statement in body]
    block = cst.IndentedBlock(deeper, footer=rest)  # type: ignore[arg-type]  # nothing goes
    condition = cst.If(cst.parse_expression(test), block, leading_lines=leading)
    return _Line(condition, frozenset().union(*(line.ids for line in lines)))


class _NoBlanks(cst.CSTTransformer):
    """At the top of a module an empty line is as indented as all others; further in it must have no blanks."""

    def visit_ParenthesizedWhitespace(self, node: cst.ParenthesizedWhitespace) -> bool:
        return False  # these lines are laid out when they are printed

    def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine:
        is_empty = updated_node.comment is None and not updated_node.whitespace.value
        return updated_node.with_changes(indent=False) if is_empty else updated_node
