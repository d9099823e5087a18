"""Carry edits out: a libcst tree, one transformer over it, and what no edit is about is printed as it was read.

What edits want of a node is done when it is left, so that edits inside it are there already. What comes of it is
checked before anybody gets it: it is Python, and other lines stay.
"""

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import libcst as cst

from dp2ddp.codemod.edits import (
    Decorate,
    DropArgument,
    DropImport,
    Guard,
    Header,
    PassTo,
    Replace,
    SetArgument,
    TextEdit,
)
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.positions import bounds
from dp2ddp.codemod.writing.blocks import Added, Blocks
from dp2ddp.codemod.writing.tree import Tree, deep_recursion, has_own_brackets, read_tree
from dp2ddp.errors import ConversionError
from dp2ddp.source.parsing import LINE_END, is_python

SPACE = cst.SimpleWhitespace(" ")
NONE = cst.SimpleWhitespace("")
KEEP_BRACKETS = (cst.NamedExpr, cst.Yield)  # no expressions without them, in most places


def edit_text(script: Module, edits: Sequence[TextEdit], header: Header | None = None) -> str:
    """The text of a file after edits, with the lines that come behind its imports."""
    try:
        after = _edited(script, list(dict.fromkeys(edits)), header)
    except (cst.CSTValidationError, cst.ParserSyntaxError) as error:  # of what edits put together
        message = str(error).splitlines()[0]
        raise ConversionError(
            f"{script.source.name}: the result would not be Python ({message}); please report this script"
        ) from error
    if not is_python(after):
        raise ConversionError(
            f"{script.source.name}: the result would not be Python; nothing was written. Please report this script"
        )
    if not keeps_other_lines(script.source.text, touched_lines(edits), after, _moved_lines(script, edits)):
        raise ConversionError(
            f"{script.source.name}: a line would change that no rule asked for. Please report this script"
        )
    return after


def _edited(script: Module, edits: Sequence[TextEdit], header: Header | None) -> str:
    holes = [hole for edit in edits if isinstance(edit, Replace) for hole in edit.holes.values()]
    lasts = [edit.last for edit in edits if isinstance(edit, Guard)]
    behind = [header.behind] if header and header.behind else []
    tree = read_tree(script, dict.fromkeys([*map(_node, edits), *holes, *lasts, *behind]))
    by_node: dict[int, list[TextEdit]] = {}
    for edit in edits:
        by_node.setdefault(id(tree.nodes[_node(edit)]), []).append(edit)
    added = _added(tree.module, header, *(id(tree.nodes[node]) for node in behind)) if header else None
    rewriter = Rewriter(script, tree, by_node, Blocks(tree, by_node, added))
    rewriter.edited.update((id(tree.nodes[hole]), tree.nodes[hole]) for hole in holes)
    with deep_recursion():
        edited = tree.module.visit(rewriter)
    assert isinstance(edited, cst.Module)
    return tree.printed(edited)


def _node(edit: TextEdit) -> ast.AST:
    """The node that is changed."""
    return edit.call if isinstance(edit, DropArgument) else edit.node


def _added(module: cst.Module, header: Header, behind: int | None = None) -> Added:
    usual = ("if _:", f"{module.default_indent}_")  # is first, so that blocks which go deeper say so
    added = cst.parse_module(module.default_newline.join((*usual, *header.lines, "")))
    return Added(added.body[1:], added.footer, behind)


class Rewriter(cst.CSTTransformer):
    """Visits nothing but the nodes that edits are about and those around them."""

    def __init__(
        self, script: Module, tree: Tree, edits: Mapping[int, Sequence[TextEdit]], blocks: Blocks
    ) -> None:
        super().__init__()
        self.script, self.tree, self.edits, self.blocks = script, tree, edits, blocks
        self.edited: dict[int, cst.CSTNode] = {}  # what holes are filled with

    def on_visit(self, node: cst.CSTNode) -> bool:
        return id(node) in self.tree.ways

    def on_leave(  # type: ignore[override]  # whatever a node may become
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        number, edited = id(original_node), updated_node
        if number in self.tree.ways:
            match original_node, updated_node:
                case cst.Module() as old, cst.Module() as new:
                    return self.blocks.module(old, new)
                case cst.IndentedBlock() as old, cst.IndentedBlock() as new:
                    return self.blocks.block(old, new)
                case cst.SimpleStatementSuite() as old, cst.SimpleStatementSuite() as new:
                    return self.blocks.suite(old, new)
        if edits := self.edits.get(number):
            edited = self._carried_out(edited, edits, number)
        if number in self.edited:
            self.edited[number] = edited
        return edited

    def _carried_out(self, node: cst.CSTNode, edits: Sequence[TextEdit], number: int) -> cst.CSTNode:
        """Arguments go and come, the call is passed on, what is replaced last stands outside."""
        inside = node
        if isinstance(node, cst.Call):
            node = self._called(node, edits)
        for edit in reversed(edits):
            match node, edit:
                case cst.Arg(), Replace():
                    if edits[1:]:
                        raise self._clash(edit.node)
                    return self._replaced_argument(node, edit)
                case _, Replace():
                    assert isinstance(node, cst.BaseExpression)
                    if node is not inside and edit.node not in edit.holes.values():
                        raise self._clash(edit.node)
                    self.edited[number] = node
                    node = self._replaced(node, edit)
                case cst.Import() | cst.ImportFrom(), DropImport():
                    return _without_names(node, edit.names)
        for edit in edits:
            if isinstance(edit, Decorate):
                node = _decorated(node, edit.code)
        return node

    def _called(self, call: cst.Call, edits: Sequence[TextEdit]) -> cst.Call:
        dropped = [_arguments(each.call).index(each.node) for each in edits if isinstance(each, DropArgument)]
        call = _without_arguments(call, dropped) if dropped else call
        for edit in edits:
            if isinstance(edit, SetArgument):
                call = _with_argument(call, edit.keyword, cst.parse_expression(edit.code))
        passed = [edit for edit in edits if isinstance(edit, PassTo)]
        if passed[1:]:
            raise self._clash(passed[0].node)
        return _passed_to(call, cst.parse_expression(passed[0].helper)) if passed else call

    def _clash(self, node: ast.AST) -> ConversionError:
        text = self.script.text(node)
        return ConversionError(f"two rules want to change the same text: {text!r}; please report this script")

    def _replaced(self, node: cst.BaseExpression, edit: Replace) -> cst.BaseExpression:
        """Brackets around an expression stay around what takes its place."""
        new = self._filled_in(edit.code, edit)
        outside = len(node.lpar) - has_own_brackets(edit.node, self.script.positions)
        return new.with_changes(
            lpar=[*node.lpar[:outside], *new.lpar], rpar=[*new.rpar, *node.rpar[len(node.rpar) - outside :]]
        )

    def _replaced_argument(self, node: cst.Arg, edit: Replace) -> cst.Arg:
        """`async=True` by `non_blocking=True`; what stands around an argument belongs to its place."""
        call = self._filled_in(f"_({edit.code})", edit)
        assert isinstance(call, cst.Call)
        return call.args[0].with_changes(comma=node.comma, whitespace_after_arg=node.whitespace_after_arg)

    def _filled_in(self, code: str, edit: Replace) -> cst.BaseExpression:
        """New code with nodes in its holes; the nodes themselves, not copies, so that their lines are known."""
        names = {name: f"__dp2ddp_hole_{name}__" for name in edit.holes if f"{{{name}}}" in code}
        holes: dict[str, cst.BaseExpression] = {}
        for name, word in names.items():
            hole = self._hole(edit.holes[name])
            in_own = re.search(rf"(^|\s)\(\{{{name}\}}\)", code)  # `({hole})` keeps its brackets
            holes[word] = in_brackets(hole) if in_own else hole
            code = code.replace(f"{{{name}}}", word)
        filled = cst.parse_expression(code, self.tree.module.config_for_parsing).visit(_Filling(holes))
        assert isinstance(filled, cst.BaseExpression)
        return filled

    def _hole(self, node: ast.AST) -> cst.BaseExpression:
        """What fills a hole, with its own edits in it."""
        edited = self.edited[id(self.tree.nodes[node])]
        assert isinstance(edited, cst.BaseExpression)
        if isinstance(edited, KEEP_BRACKETS):
            return edited
        kept = int(has_own_brackets(node, self.script.positions))
        return edited.with_changes(lpar=edited.lpar[len(edited.lpar) - kept :], rpar=edited.rpar[:kept])


class _Filling(cst.CSTTransformer):
    def __init__(self, holes: Mapping[str, cst.BaseExpression]) -> None:
        super().__init__()
        self.holes = holes

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.holes.get(updated_node.value, updated_node)


def in_brackets(node: cst.BaseExpression) -> cst.BaseExpression:
    return node if node.lpar else node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


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


def _without_arguments(call: cst.Call, dropped: Collection[int]) -> cst.Call:
    """The arguments at these places go, each with the comma behind it, the last one with the comma before it."""
    kept: list[cst.Arg] = []
    for index, argument in enumerate(call.args):
        if index not in dropped:
            kept.append(argument)
        elif kept:
            end = {"comma": argument.comma, "whitespace_after_arg": argument.whitespace_after_arg}
            kept[-1] = kept[-1].with_changes(**end)
    return call.with_changes(args=kept, whitespace_before_args=call.whitespace_before_args if kept else NONE)


def _passed_to(call: cst.Call, helper: cst.BaseExpression) -> cst.Call:
    """`helper(f, a)` of `f(a)`."""
    before = call.whitespace_before_args
    if call.args:
        first, *others = call.args
        first = first.with_changes(value=_generator_in_brackets(first.value))
        function = cst.Arg(call.func, comma=cst.Comma(whitespace_after=_behind_comma(before)))
        arguments = [function, first, *others]
    else:
        arguments = [cst.Arg(call.func, whitespace_after_arg=before)]
    return call.with_changes(
        func=helper, args=arguments, whitespace_after_func=NONE, whitespace_before_args=NONE
    )


def _behind_comma(before: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """What stood behind the bracket, with a blank unless a line ends there."""
    if isinstance(before, cst.SimpleWhitespace) and not before.value.startswith(("\r", "\n")):
        return cst.SimpleWhitespace(f" {before.value}")
    return before


def _generator_in_brackets(value: cst.BaseExpression) -> cst.BaseExpression:
    """A generator that was the only argument needs brackets of its own beside others."""
    return in_brackets(value) if isinstance(value, cst.GeneratorExp) else value


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
    last = last.with_changes(comma=statement.names[-1].comma)
    return statement.with_changes(names=[*others, last])


# --- what is promised of a result


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


def touched_lines(edits: Iterable[TextEdit]) -> set[int]:
    """The lines that edits may change, counted from 1."""
    touched: set[int] = set()
    for edit in edits:
        first, _, last, _ = bounds(edit.node)
        if isinstance(edit, DropArgument):  # the brackets that close behind it
            first, last = bounds(edit.call.func)[2], bounds(edit.call)[2]
        if isinstance(edit, Guard):
            last = bounds(edit.last)[2]
        touched.update(range(first, last + 1))
    return touched


def _moved_lines(script: Module, edits: Iterable[TextEdit]) -> set[int]:
    """The lines that may begin elsewhere: those of a statement, or of the head of a block, with an edit in it."""
    moved: set[int] = set()
    positions = script.positions
    for edit in edits:
        statement = script.statement(edit.node)
        first, _, last, _ = bounds(statement)
        for inner in getattr(statement, "body", ())[:1]:
            line = bounds(inner)[0]
            stands_before = positions.text[positions.line_starts[line - 1] : positions.span(inner).start]
            last = last if stands_before.strip() else line - 1  # `if x: f()`
        moved.update(range(first + 1, last + 1))
    return moved
