"""Promises about a result that are checked before it is handed over: it is Python, other lines stay."""

import ast
from collections.abc import Collection

from dp2ddp.codemod.edits import DropArgument, Guard
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.positions import bounds
from dp2ddp.codemod.plans.planned import Plan
from dp2ddp.errors import ConversionError
from dp2ddp.source.parsing import LINE_END, is_python


def check_result(plan: Plan, after: str) -> None:
    """Our own promises, kept in production and not only in tests."""
    source = plan.module.source
    if not is_python(after):
        raise ConversionError(
            f"{source.name}: the result would not be Python; nothing was written. Please report this script"
        )
    if not keeps_other_lines(source.text, touched_lines(plan), after, moved_lines(plan)):
        raise ConversionError(
            f"{source.name}: a line would change that no rule asked for. Please report this script"
        )


def touched_lines(plan: Plan) -> set[int]:
    """The lines that edits may change, counted from 1."""
    touched: set[int] = set()
    for edit in plan.text_edits:
        first, _, last, _ = bounds(edit.node)
        if isinstance(edit, DropArgument):  # the brackets that close behind it
            first, last = bounds(edit.call.func)[2], bounds(edit.call)[2]
        if isinstance(edit, Guard):
            last = bounds(edit.last)[2]
        touched.update(range(first, last + 1))
    return touched


def moved_lines(plan: Plan) -> set[int]:
    """The lines that may begin elsewhere: those of a statement, or of the head of a block, with an edit in it."""
    moved: set[int] = set()
    for edit in plan.text_edits:
        statement = plan.module.statement(edit.node)
        first, _, last, _ = bounds(statement)
        body = getattr(statement, "body", None)
        if body and _begins_its_line(plan.module, body[0]):
            last = bounds(body[0])[0] - 1
        moved.update(range(first + 1, last + 1))
    return moved


def _begins_its_line(file: Module, statement: ast.stmt) -> bool:
    positions = file.positions
    line_start = positions.line_starts[bounds(statement)[0] - 1]
    return not positions.text[line_start : positions.span(statement).start].strip()


def keeps_other_lines(before: str, touched: set[int], after: str, moved: Collection[int] = ()) -> bool:
    """Whether all lines that are not touched stand in the result, in their order, to the last blank.

    Of those that may have moved, the blanks before them may differ.
    """
    rest = iter(LINE_END.split(after))
    lines = [each for each in enumerate(LINE_END.split(before), start=1) if each[0] not in touched]
    return all(
        any(each.lstrip() == line.lstrip() for each in rest) if number in moved else line in rest
        for number, line in lines
    )
