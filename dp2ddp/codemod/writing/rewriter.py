"""The one transformer: what edits want of a node is done when it is left, so that edits inside it are there already."""

import ast
import re
from collections.abc import Collection, Mapping, Sequence

import libcst as cst

from dp2ddp.codemod.edits import Decorate, DropArgument, DropImport, PassTo, Replace, SetArgument, TextEdit
from dp2ddp.codemod.writing.blocks import Blocks, takes_out
from dp2ddp.codemod.writing.tree import Tree

SPACE = cst.SimpleWhitespace(" ")
NONE = cst.SimpleWhitespace("")
KEEP_BRACKETS = (cst.NamedExpr, cst.Yield)  # no expressions without them, in most places


class Rewriter(cst.CSTTransformer):
    """Visits nothing but the nodes that edits are about and those around them."""

    def __init__(
        self,
        tree: Tree,
        edits: Mapping[int, Sequence[TextEdit]],
        blocks: Blocks,
        holes: Mapping[ast.AST, cst.CSTNode],
        bracketed: Collection[ast.AST],  # holes and replaced nodes that have brackets of their own
    ) -> None:
        super().__init__()
        self.config, self.ways = tree.module.config_for_parsing, tree.ways
        self.edits, self.blocks, self.holes, self.bracketed = edits, blocks, holes, bracketed
        self._edited: dict[int, cst.CSTNode] = {id(node): node for node in holes.values()}

    def on_visit(self, node: cst.CSTNode) -> bool:
        return id(node) in self.ways

    def on_leave(  # type: ignore[override]  # whatever a node may become
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        number, edited = id(original_node), updated_node
        if number in self.ways:
            match original_node, updated_node:
                case cst.Module() as old, cst.Module() as new:
                    return self.blocks.module(old, new)
                case cst.IndentedBlock() as old, cst.IndentedBlock() as new:
                    return self.blocks.block(old, new)
                case cst.SimpleStatementSuite() as old, cst.SimpleStatementSuite() as new:
                    return self.blocks.suite(old, new)
        if edits := self.edits.get(number):
            edited = self._carried_out(edited, edits, number)
        if number in self._edited:
            self._edited[number] = edited
        return edited

    def _carried_out(self, node: cst.CSTNode, edits: Sequence[TextEdit], number: int) -> cst.CSTNode:
        """Arguments go and come, the call is passed on, what is replaced last stands outside."""
        if isinstance(node, cst.Call):
            node = _called(node, edits)
        for edit in reversed(edits):
            match node, edit:
                case cst.Arg(), Replace():
                    return self._replaced_argument(node, edit)
                case _, Replace():
                    assert isinstance(node, cst.BaseExpression)
                    self._edited[number] = node
                    node = self._replaced(node, edit)
                case cst.Import() | cst.ImportFrom(), DropImport() if not takes_out(edit):
                    return _without_names(node, edit.names)
        for edit in edits:
            if isinstance(edit, Decorate):
                node = _decorated(node, edit.code)
        return node

    def _replaced(self, node: cst.BaseExpression, edit: Replace) -> cst.BaseExpression:
        """Brackets around an expression stay around what takes its place."""
        new = _filled_in(edit.code, self._filled(edit), self.config)
        outside = len(node.lpar) - (edit.node in self.bracketed)
        return new.with_changes(
            lpar=[*node.lpar[:outside], *new.lpar], rpar=[*new.rpar, *node.rpar[len(node.rpar) - outside :]]
        )

    def _replaced_argument(self, node: cst.Arg, edit: Replace) -> cst.Arg:
        """`async=True` by `non_blocking=True`."""
        call = _filled_in(f"_({edit.code})", self._filled(edit), self.config)
        assert isinstance(call, cst.Call)
        return _argument_in_place(call.args[0], node)

    def _filled(self, edit: Replace) -> dict[str, cst.BaseExpression]:
        """The holes of a piece of code, with their own edits in them; `({hole})` keeps its brackets."""
        used = {name: self._hole(node) for name, node in edit.holes.items() if f"{{{name}}}" in edit.code}
        kept = {name for name in used if re.search(rf"(^|\s)\(\{{{name}\}}\)", edit.code)}
        return {name: in_brackets(hole) if name in kept else hole for name, hole in used.items()}

    def _hole(self, node: ast.AST) -> cst.BaseExpression:
        edited = self._edited[id(self.holes[node])]
        assert isinstance(edited, cst.BaseExpression)
        if isinstance(edited, KEEP_BRACKETS):
            return edited
        kept = 1 if node in self.bracketed else 0
        return edited.with_changes(lpar=edited.lpar[len(edited.lpar) - kept :], rpar=edited.rpar[:kept])


def _filled_in(
    code: str, holes: Mapping[str, cst.BaseExpression], config: cst.PartialParserConfig
) -> cst.BaseExpression:
    """A piece of code with nodes in its holes; the nodes themselves, not copies, so that their lines are known."""
    for name in holes:
        code = code.replace(f"{{{name}}}", _hole_name(name))
    filled = cst.parse_expression(code, config).visit(_Filling(holes))
    assert isinstance(filled, cst.BaseExpression)
    return filled


class _Filling(cst.CSTTransformer):
    def __init__(self, holes: Mapping[str, cst.BaseExpression]) -> None:
        super().__init__()
        self.holes = {_hole_name(name): hole for name, hole in holes.items()}

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.holes.get(updated_node.value, updated_node)


def _hole_name(name: str) -> str:
    return f"__dp2ddp_hole_{name}__"


def in_brackets(node: cst.BaseExpression) -> cst.BaseExpression:
    return node if node.lpar else node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _called(call: cst.Call, edits: Sequence[TextEdit]) -> cst.Call:
    given = (each for each in edits if isinstance(each, DropArgument))
    if dropped := {_arguments(each.call).index(each.node) for each in given}:
        call = _without_arguments(call, dropped)
    for edit in edits:
        if isinstance(edit, SetArgument):
            call = _with_argument(call, edit.keyword, cst.parse_expression(edit.code))
    for edit in edits:
        if isinstance(edit, PassTo):
            call = _passed_to(call, cst.parse_expression(edit.helper))
    return call


def _arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """In the order of the text."""
    return sorted((*call.args, *call.keywords), key=lambda node: (node.lineno, node.col_offset))


def _decorated(node: cst.CSTNode, code: str) -> cst.CSTNode:
    """Under the decorators and comments that stand above it."""
    assert isinstance(node, (cst.ClassDef, cst.FunctionDef))
    carrier = cst.parse_statement(f"{code}\ndef _(): pass")
    assert isinstance(carrier, cst.FunctionDef)
    (decorator,) = carrier.decorators
    decorator = decorator.with_changes(leading_lines=node.lines_after_decorators)
    return node.with_changes(decorators=[*node.decorators, decorator], lines_after_decorators=())


# --- calls with arguments taken out, given, or passed on to a helper


def _with_argument(call: cst.Call, keyword: str, value: cst.BaseExpression) -> cst.Call:
    """A keyword argument behind the others; a comma behind the last one stays behind the last one."""
    given = cst.Arg(value, keyword=cst.Name(keyword), equal=cst.AssignEqual(NONE, NONE))
    if not call.args:
        return call.with_changes(args=[given])
    *others, last = call.args
    given = given.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    last = last.with_changes(
        value=_generator_in_brackets(last.value),
        comma=cst.Comma(whitespace_after=SPACE),
        whitespace_after_arg=NONE,
    )
    return call.with_changes(args=[*others, last, given])


def _without_arguments(call: cst.Call, dropped: set[int]) -> cst.Call:
    """The arguments at these places go, each with the comma behind it, the last one with the comma before it."""
    kept: list[cst.Arg] = []
    for index, argument in enumerate(call.args):
        if index not in dropped:
            kept.append(argument)
        elif kept:
            end = {"comma": argument.comma, "whitespace_after_arg": argument.whitespace_after_arg}
            kept[-1] = kept[-1].with_changes(**end)
    if not kept:
        return call.with_changes(args=[], whitespace_before_args=NONE)
    return call.with_changes(args=kept)


def _passed_to(call: cst.Call, helper: cst.BaseExpression) -> cst.Call:
    """`helper(f, a)` of `f(a)`."""
    before = call.whitespace_before_args
    if not call.args:
        only = cst.Arg(call.func, whitespace_after_arg=before)
        return call.with_changes(
            func=helper, args=[only], whitespace_after_func=NONE, whitespace_before_args=NONE
        )
    first, *others = call.args
    first = first.with_changes(value=_generator_in_brackets(first.value))
    function = cst.Arg(call.func, comma=cst.Comma(whitespace_after=_behind_comma(before)))
    return call.with_changes(
        func=helper, args=[function, first, *others], whitespace_after_func=NONE, whitespace_before_args=NONE
    )


def _behind_comma(before: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """What stood behind the bracket, with a blank unless a line ends there."""
    if isinstance(before, cst.SimpleWhitespace) and not before.value.startswith(("\r", "\n")):
        return cst.SimpleWhitespace(f" {before.value}")
    return before


def _generator_in_brackets(value: cst.BaseExpression) -> cst.BaseExpression:
    """A generator that was the only argument needs brackets of its own beside others."""
    return in_brackets(value) if isinstance(value, cst.GeneratorExp) else value


def _argument_in_place(new: cst.Arg, old: cst.Arg) -> cst.Arg:
    """What stands around an argument belongs to its place."""
    return new.with_changes(comma=old.comma, whitespace_after_arg=old.whitespace_after_arg)


# --- imports with names taken out


def _without_names(
    statement: cst.Import | cst.ImportFrom, names: Collection[str]
) -> cst.Import | cst.ImportFrom:
    """The import without some of its names; others are left, and what stood behind the last one stays.

    By hand: what libcst's own RemoveImportsVisitor needs takes as long to import as all of libcst (0.2 s).
    """
    assert not isinstance(statement.names, cst.ImportStar)
    *others, last = (
        alias for alias in statement.names if (alias.evaluated_alias or alias.evaluated_name) not in names
    )
    end = statement.names[-1].comma
    if last is statement.names[-1] or not _has_comment_behind(last):
        return statement.with_changes(names=[*others, last.with_changes(comma=end)])
    assert isinstance(statement, cst.ImportFrom)
    assert isinstance(statement.rpar, cst.RightParen)
    below = end.whitespace_after if isinstance(end, cst.Comma) else statement.rpar.whitespace_before
    closing = {"last_line": below.last_line} if isinstance(below, cst.ParenthesizedWhitespace) else {}
    comma = last.comma.with_deep_changes(last.comma.whitespace_after, **closing)  # type: ignore[union-attr]
    rpar = cst.RightParen(cst.SimpleWhitespace(""))
    return statement.with_changes(names=[*others, last.with_changes(comma=comma)], rpar=rpar)


def _has_comment_behind(alias: cst.ImportAlias) -> bool:
    comma = alias.comma
    behind = comma.whitespace_after if isinstance(comma, cst.Comma) else None
    return isinstance(behind, cst.ParenthesizedWhitespace) and behind.first_line.comment is not None
