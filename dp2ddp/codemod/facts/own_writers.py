"""Classes of a project that are derived from what writes, over files: `class Log(logging.FileHandler)`.

An object of one is what an object of its base is: rank 0 makes it, and the others have what takes every call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.codemod.facts.destinations import PATH_NAME, Destination, destination
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import SETTINGS, CallSite, Script

Part = tuple[Script, ast.AST]
MAKES = ("__init__", "__new__")


@dataclass(frozen=True, eq=False)
class OwnClass:
    """A class of the project, and those of its bases that are."""

    family: tuple[tuple[Script, ast.ClassDef], ...]
    bases: tuple[str, ...]  # of libraries

    @property
    def name(self) -> str:
        return self.family[0][1].name

    @cached_property
    def made_by(self) -> tuple[Part, ...]:
        """Its own __init__ and __new__: what its base is given is theirs to say."""
        return tuple((home, method) for home, method in self.methods if method.name in MAKES)

    @cached_property
    def methods(self) -> tuple[tuple[Script, ast.FunctionDef], ...]:
        return tuple(
            (home, part)
            for home, owner in self.family
            for part in owner.body
            if isinstance(part, ast.FunctionDef)
        )

    @cached_property
    def calls_of_base(self) -> tuple[CallSite, ...]:
        """`super().__init__(path, "w")`, `logging.FileHandler.__init__(self, path)`."""
        return tuple(
            call
            for home, method in self.made_by
            for call in home.calls
            if call.method in MAKES and method in home.scopes.ancestors(call.node)
        )

    @cached_property
    def answers(self) -> frozenset[str]:
        """What an object of it can say that rank 0's alone would know: what its methods give, what it keeps."""
        return frozenset((*self._given(), *self._kept()))

    def _given(self) -> Iterator[str]:
        for _, method in self.methods:
            gives = any(isinstance(node, ast.Return) and node.value for node in ast.walk(method))
            if gives and not method.name.startswith("__"):
                yield method.name

    def _kept(self) -> Iterator[str]:
        """But texts, numbers and paths that it has from the start, which all ranks are told."""
        for home, method in self.methods:
            for node in ast.walk(method):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and _is_self(node.value)
                ):
                    parent = home.scopes.parents[node]
                    value = parent.value if isinstance(parent, (ast.Assign, ast.AnnAssign)) else None
                    if method.name not in MAKES or not _is_plain(home, value):
                        yield node.attr


def own_class(modules: Modules, script: Script, node: ast.AST) -> OwnClass | None:
    """The class of the project that an expression means, if it has bases in libraries."""
    family = [(script, node)] if isinstance(node, ast.ClassDef) else _meant(modules, script, node)
    bases: list[str] = []
    for home, owner in family:  # which grows
        for base in owner.bases:
            meant = _meant(modules, home, base)
            family += [part for part in meant if part not in family]
            name = None if meant else home.scopes.name(base)
            bases += [name] if name else []
    return OwnClass(tuple(family), tuple(bases)) if bases else None


def _meant(modules: Modules, script: Script, node: ast.AST) -> list[tuple[Script, ast.ClassDef]]:
    """The classes of the project that a name may mean, also a second name for one: `Base = Log`."""
    parts = modules.definitions(script, node) or modules.definitions(
        script, script.scopes.value(node) or node
    )
    return [(home, part) for home, part in parts if isinstance(part, ast.ClassDef)]


def reads_of_answers(script: Script, owner: OwnClass) -> Iterator[ast.Attribute]:
    """Where a file asks an object for what rank 0 alone would know; whose object it is, its name does not say."""
    for node in script.nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        is_read = node.attr in owner.answers and isinstance(node.ctx, ast.Load)
        if is_read and not _is_of_others(script, node.value) and not _is_called_for_nothing(script, node):
            yield node


def _is_of_others(script: Script, value: ast.expr) -> bool:
    """Whether it is a module, the settings, the object itself, `super()`."""
    if isinstance(value, ast.Name) and value.id in {*SETTINGS, "self", "cls"}:
        return True
    is_super = isinstance(value, ast.Call) and script.scopes.name(value.func) == "builtins.super"
    return is_super or script.scopes.name(value) is not None


def _is_called_for_nothing(script: Script, node: ast.Attribute) -> bool:
    call = script.scopes.parents[node]
    return (
        isinstance(call, ast.Call) and call.func is node and isinstance(script.scopes.parents[call], ast.Expr)
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_plain(script: Script, value: ast.expr | None) -> bool:
    if isinstance(value, (ast.Constant, ast.JoinedStr)) or destination(script, value) is Destination.PATH:
        return True
    return isinstance(value, ast.Name) and PATH_NAME.search(value.id) is not None
