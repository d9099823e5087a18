"""Carry a plan out: a libcst tree, one transformer over it, and what no edit is about is printed as it was read."""

import ast
from collections.abc import Iterator, Sequence

import libcst as cst

from dp2ddp.codemod.edits import (
    Decorate,
    DropArgument,
    DropImport,
    Guard,
    Header,
    InsertAfter,
    InsertBefore,
    PassTo,
    Remove,
    Replace,
    SetArgument,
    TextEdit,
)
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.writing.blocks import Added, Around, Before, Blocks, Guarded
from dp2ddp.codemod.writing.rewriter import NodeEdits, Rewriter
from dp2ddp.codemod.writing.tree import Tree, deep_recursion, has_own_brackets, read_tree
from dp2ddp.errors import ConversionError


def edit_text(script: Module, edits: Sequence[TextEdit], header: Header | None = None) -> str:
    """The text of a file after edits, with the lines that come behind its imports."""
    try:
        return _Editor(script, edits, header).text()
    except (cst.CSTValidationError, cst.ParserSyntaxError) as error:  # of what edits put together
        message = str(error).splitlines()[0]
        raise ConversionError(
            f"{script.source.name}: the result would not be Python ({message}); please report this script"
        ) from error


class _Editor:
    """Edits, by the nodes of the libcst tree that they are about."""

    def __init__(self, script: Module, edits: Sequence[TextEdit], header: Header | None) -> None:
        self.script = script
        self.edits = _unique(edits)
        self.header = header
        self.tree = self._read()
        self.node_edits: dict[int, NodeEdits] = {}
        self.around: dict[int, Around] = {}
        self.guarded: list[Guarded] = []
        self._refuse_clashes()
        for edit in self.edits:
            self._take(edit)

    def text(self) -> str:
        module = self.tree.module
        blocks = Blocks(self.around, self.guarded, self._added())
        holes = {node: self.tree.nodes[node] for edit in self._replacing() for node in edit.holes.values()}
        bracketed = frozenset(
            node
            for edit in self._replacing()
            for node in (edit.node, *edit.holes.values())
            if has_own_brackets(node, self.script.positions)
        )
        config = module.config_for_parsing
        with deep_recursion():
            edited = module.visit(Rewriter(self.tree.ways, self.node_edits, blocks, holes, bracketed, config))
        assert isinstance(edited, cst.Module)
        return self.tree.printed(edited)

    def _read(self) -> Tree:
        nodes = [node for edit in self.edits for node in self._nodes(edit)]
        if self.header and self.header.behind is not None:
            nodes.append(self.header.behind)
        return read_tree(self.script, dict.fromkeys(nodes))

    def _nodes(self, edit: TextEdit) -> list[ast.AST]:
        """The nodes whose places in the tree must be known."""
        match edit:
            case Replace():
                return [edit.node, *edit.holes.values()]
            case DropArgument():
                return [edit.call]
            case Guard():
                return [edit.node, edit.last]
        return [edit.node]

    def _replacing(self) -> Iterator[Replace]:
        return (edit for edit in self.edits if isinstance(edit, Replace))

    # --- what is wanted of each node

    def _take(self, edit: TextEdit) -> None:
        match edit:
            case Replace():
                self._edits_of(self.tree.nodes[edit.node]).replaced.append(edit)
            case PassTo():
                self._edits_of(self.tree.nodes[edit.node]).passed = edit
            case SetArgument():
                self._edits_of(self.tree.nodes[edit.node]).given.append(edit)
            case DropArgument():
                place = self._arguments(edit.call).index(edit.node)
                self._edits_of(self.tree.nodes[edit.call]).dropped.add(place)
            case Decorate():
                self._edits_of(self.tree.nodes[edit.node]).decorated.append(edit)
            case Guard():
                first, last = self.tree.nodes[edit.node], self.tree.nodes[edit.last]
                self.guarded.append(Guarded(id(first), id(last), edit.test))
            case Remove():
                self._remove(edit.node)
            case DropImport() if len(edit.names) == len(edit.node.names):
                self._remove(edit.node)
            case DropImport():
                self._edits_of(self.tree.nodes[edit.node]).unused = edit.names
            case InsertBefore():
                self._around(edit.node).before.append(Before(edit.code, edit.apart))
            case InsertAfter():
                self._around(edit.node).after.append(edit.code)

    def _edits_of(self, node: cst.CSTNode) -> NodeEdits:
        return self.node_edits.setdefault(id(node), NodeEdits())

    def _around(self, statement: ast.stmt) -> Around:
        return self.around.setdefault(id(self.tree.nodes[statement]), Around())

    def _arguments(self, call: ast.Call) -> list[ast.expr | ast.keyword]:
        """In the order of the text."""
        return sorted((*call.args, *call.keywords), key=lambda node: self.script.positions.span(node).start)

    def _remove(self, statement: ast.stmt) -> None:
        around, parent = self._around(statement), self.script.parents[statement]
        blocks = (getattr(parent, name, []) for name in ("body", "orelse", "finalbody"))
        around.removed = True
        around.alone = not isinstance(parent, ast.Module) and any(block == [statement] for block in blocks)

    # --- what cannot be

    def _refuse_clashes(self) -> None:
        """A ConversionError for two rules that want the same text."""
        by_node: dict[ast.AST, list[TextEdit]] = {}
        for edit in self.edits:
            if isinstance(edit, (Replace, PassTo, SetArgument)):
                by_node.setdefault(edit.node, []).append(edit)
        for node, edits in by_node.items():
            replacing = [edit for edit in edits if isinstance(edit, Replace)]
            passing = sum(isinstance(edit, PassTo) for edit in edits)
            inner = edits[-1:] if len(replacing) == len(edits) else []
            lost = [edit for edit in replacing if edit not in inner and node not in edit.holes.values()]
            if lost or passing > 1:
                raise ConversionError(
                    f"two rules want to change the same text: {self.script.text(node)!r}; please report this script"
                )

    # --- what comes behind the imports

    def _added(self) -> Added | None:
        if self.header is None:
            return None
        module = self.tree.module
        usual = ("if _:", f"{module.default_indent}_")  # is first, so that blocks which go deeper say so
        added = cst.parse_module(module.default_newline.join((*usual, *self.header.lines, "")))
        behind = self.tree.nodes[self.header.behind] if self.header.behind is not None else None
        return Added(tuple(added.body[1:]), tuple(added.footer), id(behind) if behind else None)


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
