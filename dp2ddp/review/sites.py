"""Where things stand in a file, and where its functions are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS, NAMED_FUNCTIONS
from dp2ddp.codemod.model.scopes import Scope
from dp2ddp.review.own_file import OwnFile

SPAWNS = {
    *(
        "torch.multiprocessing.spawn",
        "torch.multiprocessing.start_processes",
        "torch.multiprocessing.Process",
    ),
    *(
        "multiprocessing.Process",
        "torch.multiprocessing.spawn.spawn",
        "torch.multiprocessing.spawn.start_processes",
    ),
}


class Sites:
    """The places of one file's nodes, functions and calls."""

    def __init__(self, file: OwnFile) -> None:
        self.file, self.module = file, file.module

    @cached_property
    def spawns(self) -> tuple[Call, ...]:
        """The calls that start processes of the script's own."""
        return tuple(call for call in self.module.calls if (call.name or "") in SPAWNS)

    def loop_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around a node, within its function."""
        for parent in self.module.around(node):
            if isinstance(parent, FUNCTIONS):
                return None
            if isinstance(parent, LOOPS):
                return parent
        return None

    def function_of(self, node: ast.AST) -> ast.AST:
        """The function around a node, or the module."""
        return self._scope_around(node, FUNCTIONS) or self.module.tree

    def owner_class(self, node: ast.AST) -> ast.AST | None:
        """The class whose body (methods included) holds a node."""
        return self._scope_around(node, (ast.ClassDef,))

    def _scope_around(self, node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> ast.AST | None:
        scope: Scope | None = self.module.scope_of[node]
        while scope is not None and not isinstance(scope.node, kinds):
            scope = scope.outer
        return scope.node if scope else None

    def sites_of(self, function: ast.AST) -> list[ast.AST]:
        """Where a function of this file is called or handed on (`mp.spawn(main_worker)`)."""
        if not isinstance(function, NAMED_FUNCTIONS):
            return []
        owner = self.module.parents[function]
        if not isinstance(owner, ast.ClassDef):
            return self._names_of(function, function.name)
        if function.name == "__init__":
            return self._names_of(owner, owner.name)
        if function.name.startswith("__") or len(self.file.methods_by_name[function.name]) > 1:
            return []  # called in ways that are not seen, or not told apart
        mentions = self.module.by_word.get(function.name, ())
        return [
            node
            for node in mentions
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and self.module.name(node) is None  # `torch.save` is no method of the file's own
        ]

    def is_started(self, function: ast.AST) -> bool:
        """Whether a function is what the processes of a call in this file run."""
        return any(site in self._in_spawns for site in self.sites_of(function))

    @cached_property
    def _in_spawns(self) -> set[ast.AST]:
        return {node for spawn in self.spawns for node in ast.walk(spawn.node)}

    def arguments_at(self, function: ast.FunctionDef, place: int) -> Iterator[ast.expr]:
        """What the calls of a function in this file give to the parameter at a place (`self` is one), by position."""
        is_method = isinstance(self.module.parents[function], ast.ClassDef)
        for site in self.sites_of(function):
            call = self.module.parents[site]
            given = call.args[place - is_method :] if isinstance(call, ast.Call) and call.func is site else []
            if given and place >= is_method:
                yield given[0]

    def _names_of(self, definition: ast.AST, name: str) -> list[ast.AST]:
        """Where a function or a class is named."""
        return [
            node
            for node in self.module.by_word.get(name, ())
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and self.file.definition(node) is definition
        ]


def statements_before(parent: ast.AST, inner: ast.AST) -> list[ast.stmt]:
    """The statements above one in its block, if the block is one of this parent's."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and inner in block:
            return block[: block.index(inner)]
    return []
