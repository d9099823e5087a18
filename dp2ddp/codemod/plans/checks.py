"""Promises about a result that are checked before it is handed over: it is Python, other lines stay."""

from __future__ import annotations

from dp2ddp.codemod.edits import DropArgument, Guard, ParsedFile
from dp2ddp.codemod.model.positions import bounds
from dp2ddp.codemod.plans.planned import Plan
from dp2ddp.errors import ConversionError
from dp2ddp.source.parsing import LINE_END, is_python


def check_result(file: ParsedFile, plan: Plan, after: str) -> None:
    """Our own promises, kept in production and not only in tests."""
    name = file.source.name
    if not is_python(after):
        raise ConversionError(
            f"{name}: the result would not be Python; nothing was written. Please report this script"
        )
    if not keeps_other_lines(file.source.text, touched_lines(plan), after):
        raise ConversionError(
            f"{name}: a line would change that no rule asked for. Please report this script"
        )


def touched_lines(plan: Plan) -> set[int]:
    """The lines that edits may change, counted from 1."""
    touched: set[int] = set()
    for edit in plan.text_edits():
        first, _, last, _ = bounds(edit.node)
        if isinstance(edit, DropArgument):  # the brackets that close behind it
            first, last = bounds(edit.call.func)[2], bounds(edit.call)[2]
        if isinstance(edit, Guard):
            last = bounds(edit.last)[2]
        touched.update(range(first, last + 1))
    return touched


def keeps_other_lines(before: str, touched: set[int], after: str) -> bool:
    """Whether all lines that are not touched stand in the result, in their order, to the last blank."""
    rest = iter(LINE_END.split(after))
    lines = enumerate(LINE_END.split(before), start=1)
    return all(line in rest for number, line in lines if number not in touched)
