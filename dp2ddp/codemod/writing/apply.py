"""Carry a plan out: a libcst tree, one transformer over it, and what no edit is about is printed as it was read."""

import ast
from collections.abc import Sequence

import libcst as cst

from dp2ddp.codemod.edits import DropArgument, Guard, Header, PassTo, Replace, SetArgument, TextEdit
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.writing.blocks import Added, Blocks
from dp2ddp.codemod.writing.rewriter import Rewriter
from dp2ddp.codemod.writing.tree import deep_recursion, has_own_brackets, read_tree
from dp2ddp.errors import ConversionError


def edit_text(script: Module, edits: Sequence[TextEdit], header: Header | None = None) -> str:
    """The text of a file after edits, with the lines that come behind its imports."""
    edits = _unique(edits)
    _refuse_clashes(script, edits)
    try:
        return _edited(script, edits, header)
    except (cst.CSTValidationError, cst.ParserSyntaxError) as error:  # of what edits put together
        message = str(error).splitlines()[0]
        raise ConversionError(
            f"{script.source.name}: the result would not be Python ({message}); please report this script"
        ) from error


def _edited(script: Module, edits: Sequence[TextEdit], header: Header | None) -> str:
    holes = [hole for edit in edits if isinstance(edit, Replace) for hole in edit.holes.values()]
    lasts = [edit.last for edit in edits if isinstance(edit, Guard)]
    behind = [header.behind] if header and header.behind else []
    tree = read_tree(script, dict.fromkeys([*map(_node, edits), *holes, *lasts, *behind]))
    by_node: dict[int, list[TextEdit]] = {}
    for edit in edits:
        by_node.setdefault(id(tree.nodes[_node(edit)]), []).append(edit)
    added = _added(tree.module, header, *(id(tree.nodes[node]) for node in behind)) if header else None
    bracketed = [node for node in (*map(_node, edits), *holes) if has_own_brackets(node, script.positions)]
    blocks = Blocks(tree, by_node, added)
    rewriter = Rewriter(tree, by_node, blocks, {hole: tree.nodes[hole] for hole in holes}, bracketed)
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


def _refuse_clashes(script: Module, edits: Sequence[TextEdit]) -> None:
    """A ConversionError for two rules that want the same text."""
    by_node: dict[ast.AST, list[TextEdit]] = {}
    for edit in edits:
        if isinstance(edit, (Replace, PassTo, SetArgument)):
            by_node.setdefault(edit.node, []).append(edit)
    for node, of_node in by_node.items():
        replacing = [edit for edit in of_node if isinstance(edit, Replace)]
        passing = sum(isinstance(edit, PassTo) for edit in of_node)
        inner = of_node[-1:] if len(replacing) == len(of_node) else []
        lost = [edit for edit in replacing if edit not in inner and node not in edit.holes.values()]
        if lost or passing > 1:
            raise ConversionError(
                f"two rules want to change the same text: {script.text(node)!r}; please report this script"
            )


def _unique(edits: Sequence[TextEdit]) -> list[TextEdit]:
    """Two rules may want the same thing."""
    unique: dict[tuple[object, ...], TextEdit] = {}
    for edit in edits:
        parts = vars(edit).items()
        key = tuple(_key(value) for name, value in parts if name not in ("because", "helpers"))
        unique.setdefault((type(edit), *key), edit)
    return list(unique.values())


def _key(value: object) -> object:
    if isinstance(value, ast.AST):
        return id(value)
    return tuple((name, id(node)) for name, node in value.items()) if isinstance(value, dict) else value
