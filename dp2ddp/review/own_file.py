"""One file, read alone, and what the rules of the check ask of its names beside what the model says of every file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from dp2ddp.codemod.knowledge import canonical, knows
from dp2ddp.codemod.looks.ours import read_tree
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.source.files import SourceFile
from dp2ddp.source.helper_module import pasted_lines
from dp2ddp.source.projects import Project

# Where the file stands: in packages of no name, so that what it imports from beside it is none of a library.
ALONE = "_._._._._._.file"
SETTINGS = {"args", "opt", "opts", "cfg", "config", "conf", "options", "hparams", "hps", "params", "FLAGS"}
Variable = tuple[ast.AST | None, str]
Method = ast.FunctionDef | ast.AsyncFunctionDef


class OwnFile:
    """A file whose imports are not followed."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.module = Program(Project(source, entry_module=ALONE), canonical, knows, read=read_tree).entry
        self._texts: dict[ast.AST, str] = {}

    def calls_of(self, *names: str) -> Iterator[Call]:
        """All calls of functions with these dotted names."""
        return (call for call in self.module.calls if call.name in names)

    def is_own(self, name: str) -> bool:
        """Whether a dotted name is of this file."""
        return self.module.program.is_local(name)

    def definition(self, node: ast.AST) -> ast.AST | None:
        """The function or class of this file that a plain name means."""
        found = self.module.definition(node) if isinstance(node, ast.Name) else None
        return found[1] if found else None

    def values(self, node: ast.Name) -> list[ast.AST | None]:
        """What a name is set to, wherever it is; None for what is no plain `name = expression`."""
        return [
            each.node if each.how is Binds.VALUE else None
            for each in self.module.bindings(node)
            if each.how not in (Binds.IMPORT, Binds.DEFINITION)
        ]

    def variable(self, node: ast.AST) -> Variable:
        """What a name, an attribute or an item means: two mentions of one thing have equal variables.

        A plain name is told apart by the function (or the file) that binds it. Attributes of one name count as
        one, whoever's they are, but for those of what a command line is usually kept in (`args.model`).
        """
        if isinstance(node, ast.Name):
            scope = self.module.scope_of[node].lookup(node.id)
            return scope.node if scope else None, node.id
        if isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in SETTINGS
        ):
            return None, f".{node.attr}"
        return None, self.text_of(node)

    def text_of(self, node: ast.AST) -> str:
        """An expression in one spelling (`ast.unparse`, remembered: it is the slowest question there is)."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self.text_of(node.value)}.{node.attr}"
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

    @cached_property
    def methods_by_name(self) -> dict[str, list[Method]]:
        """The methods of all classes of the file."""
        methods: dict[str, list[Method]] = {}
        for node in self.module.nodes(*NAMED_FUNCTIONS):
            if isinstance(node, NAMED_FUNCTIONS) and isinstance(self.module.parents[node], ast.ClassDef):
                methods.setdefault(node.name, []).append(node)
        return methods

    @cached_property
    def pasted_lines(self) -> range:
        """The lines of helpers that a conversion has pasted."""
        return pasted_lines(self.source)


def literal(node: ast.AST | None) -> object:
    """The value of a literal expression, or None."""
    if node is None:
        return None
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value
