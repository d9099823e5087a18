"""Names taken out of an import."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst


def without_names(statement: cst.Import | cst.ImportFrom, names: Collection[str]) -> cst.BaseSmallStatement:
    """The import without some of its names; others are left.

    By hand: what libcst's own RemoveImportsVisitor needs takes as long to import as all of libcst (0.2 s).
    """
    assert not isinstance(statement.names, cst.ImportStar)
    left = [
        alias for alias in statement.names if (alias.evaluated_alias or alias.evaluated_name) not in names
    ]
    return _with_last_comma(statement, left)


def _with_last_comma(
    before: cst.Import | cst.ImportFrom, left: Sequence[cst.ImportAlias]
) -> cst.BaseSmallStatement:
    """With these names: the last has the comma of the last one before, and its own comment."""
    assert not isinstance(before.names, cst.ImportStar)
    *others, last = left
    end = before.names[-1].comma
    if last is before.names[-1] or not _comment_behind(last):
        return before.with_changes(names=[*others, last.with_changes(comma=end)])
    assert isinstance(before, cst.ImportFrom)
    assert isinstance(before.rpar, cst.RightParen)
    below = end.whitespace_after if isinstance(end, cst.Comma) else before.rpar.whitespace_before
    closing = {"last_line": below.last_line} if isinstance(below, cst.ParenthesizedWhitespace) else {}
    comma = last.comma.with_deep_changes(last.comma.whitespace_after, **closing)  # type: ignore[union-attr]
    rpar = cst.RightParen(cst.SimpleWhitespace(""))
    return before.with_changes(names=[*others, last.with_changes(comma=comma)], rpar=rpar)


def _comment_behind(alias: cst.ImportAlias) -> bool:
    comma = alias.comma
    behind = comma.whitespace_after if isinstance(comma, cst.Comma) else None
    return isinstance(behind, cst.ParenthesizedWhitespace) and behind.first_line.comment is not None
