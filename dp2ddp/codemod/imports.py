"""Names taken out of an import, by libcst's own RemoveImportsVisitor."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst


def without_names(statement: cst.Import | cst.ImportFrom, names: Collection[str]) -> cst.BaseSmallStatement:
    """The import without some of its names; others are left.

    The visitor sees the import alone. That nothing uses the names is known (unused.py); over a whole module it would
    take longer to find out than all else together (3,000 lines: 0.6 s).
    """
    # Imported here: libcst's matchers, which its codemods need, take as long to import as libcst itself.
    from libcst.codemod import CodemodContext
    from libcst.codemod.visitors import RemoveImportsVisitor

    context = CodemodContext()
    assert not isinstance(statement.names, cst.ImportStar)
    module = _module(statement)
    for alias in statement.names:
        if (alias.evaluated_alias or alias.evaluated_name) in names:
            RemoveImportsVisitor.remove_unused_import(
                context,
                module or alias.evaluated_name,
                alias.evaluated_name if module else None,
                alias.evaluated_alias,
            )
    before = cst.Module([cst.SimpleStatementLine([statement])])
    after = RemoveImportsVisitor(context).transform_module(before)
    (line,) = after.body
    assert isinstance(line, cst.SimpleStatementLine)
    (left,) = line.body
    return _with_last_comma(statement, left)


def _module(statement: cst.Import | cst.ImportFrom) -> str:
    """`torch.nn` of `from torch.nn import Module`."""
    if isinstance(statement, cst.Import) or statement.module is None:
        return ""
    return cst.Module([]).code_for_node(statement.module)


def _with_last_comma(
    before: cst.Import | cst.ImportFrom, after: cst.BaseSmallStatement
) -> cst.BaseSmallStatement:
    """The visitor takes the comma behind the last name that stays, with the comment and the line ending behind it."""
    assert isinstance(after, (cst.Import, cst.ImportFrom))
    assert not isinstance(before.names, cst.ImportStar)
    assert not isinstance(after.names, cst.ImportStar)
    *others, last = after.names
    was = next(alias for alias in before.names if alias.name.deep_equals(last.name))
    end = before.names[-1].comma
    if was is before.names[-1] or not _comment_behind(was):
        return after.with_changes(names=[*others, last.with_changes(comma=end)])
    assert isinstance(before, cst.ImportFrom)
    assert isinstance(before.rpar, cst.RightParen)
    below = end.whitespace_after if isinstance(end, cst.Comma) else before.rpar.whitespace_before
    closing = {"last_line": below.last_line} if isinstance(below, cst.ParenthesizedWhitespace) else {}
    comma = was.comma.with_deep_changes(was.comma.whitespace_after, **closing)  # type: ignore[union-attr]
    rpar = cst.RightParen(cst.SimpleWhitespace(""))
    return after.with_changes(names=[*others, last.with_changes(comma=comma)], rpar=rpar)


def _comment_behind(alias: cst.ImportAlias) -> bool:
    comma = alias.comma
    behind = comma.whitespace_after if isinstance(comma, cst.Comma) else None
    return isinstance(behind, cst.ParenthesizedWhitespace) and behind.first_line.comment is not None
