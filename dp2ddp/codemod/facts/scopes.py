"""Which name means what, and where: one walk over the tree, then questions by node.

Names are told as qualified names (`torch.nn.DataParallel`) through imports, aliases and plain assignments
(`DP = nn.DataParallel`). What cannot be known has no name (None): a guess would become a wrong edit.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

Function = ast.FunctionDef | ast.AsyncFunctionDef
SCRIPT = "__script__"  # the qualified names of what the script defines itself start with it

# One class, many addresses: the first name is the one that rules ask for.
CANONICAL = {
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.data_parallel": "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.Dataset": "torch.utils.data.Dataset",
    "torch.utils.data.dataset.IterableDataset": "torch.utils.data.IterableDataset",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.nn.modules.Module": "torch.nn.Module",
    "torch.serialization.save": "torch.save",
    "torch.serialization.load": "torch.load",
    "torch.utils.tensorboard.writer.SummaryWriter": "torch.utils.tensorboard.SummaryWriter",
    "datetime.datetime.today": "datetime.datetime.now",
}
SIX_MOVES = "six.moves."  # Python 2's names for modules of the standard library, and for builtins
OF_SIX_MOVES = {
    "cPickle": "pickle",
    **{name: f"builtins.{name}" for name in ("range", "zip", "map", "filter", "input")},
}
STAR_NAMES = {  # what `from X import *` brings, of the few names that rules ask for
    "torch.nn": {"DataParallel", "Module", "parallel"},
    "torch": {"nn", "save", "load", "cuda", "device", "utils", "optim", "manual_seed"},
    "torch.nn.parallel": {"DataParallel", "DistributedDataParallel", "data_parallel"},
    "torch.utils.data": {"DataLoader", "Dataset", "TensorDataset", "Subset", "random_split"},
    "os": {"makedirs", "mkdir", "remove", "rename", "replace", "system", "path", "environ"},
    "shutil": {"rmtree", "copy", "copyfile", "copytree", "move"},
    "time": {"time", "strftime", "perf_counter"},
}


def canonical(name: str) -> str:
    """The one name of what can be imported from several places."""
    if name.startswith(SIX_MOVES):
        first, dot, rest = name.removeprefix(SIX_MOVES).partition(".")
        name = OF_SIX_MOVES.get(first, first) + dot + rest
    return CANONICAL.get(name, name)


class OtherModules(Protocol):
    """What the other files of a project know about names."""

    def meaning(self, name: str) -> str:
        """A qualified name, followed through local modules that only pass it on."""

    def binds(self, module: str, name: str) -> bool:
        """Whether `from module import *` brings a name."""


@dataclass(eq=False)
class Scope:
    """The names that one module, function, lambda or class body binds."""

    node: ast.AST
    parent: Scope | None
    imports: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[ast.expr | None]] = field(
        default_factory=dict
    )  # None: bound, but not to an expression
    definitions: dict[str, ast.AST] = field(default_factory=dict)  # the last of a name
    every: dict[str, list[ast.AST]] = field(default_factory=dict)  # all of them
    outer: set[str] = field(default_factory=set)  # names declared global or nonlocal

    def binds(self, name: str) -> bool:
        return name in self.imports or name in self.values or name in self.definitions


class Scopes:
    """Scopes, parents and names of one script; `package` is the one that its relative imports start from."""

    def __init__(
        self, module: ast.Module, package: tuple[str, ...] = (), others: OtherModules | None = None
    ) -> None:
        self.module = module
        self.package = package
        self.others = others
        self.top = Scope(module, None)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scope_of: dict[ast.AST, Scope] = {module: self.top}
        self.stars: list[str] = []
        self.nodes: list[ast.AST] = []
        self._names: dict[ast.AST | None, str | None] = {}
        self._visit_children(module, self.top)

    # --- building

    def _visit(self, node: ast.AST, scope: Scope, parent: ast.AST) -> None:
        self.parents[node] = parent
        self.scope_of[node] = scope
        self.nodes.append(node)
        _bind(node, scope, self)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            self._visit_definition(node, scope)
        else:
            self._visit_children(node, scope)

    def _visit_children(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)):
                self._visit(child, scope, node)

    def _visit_definition(self, node: Function | ast.Lambda | ast.ClassDef, scope: Scope) -> None:
        """The body is a scope of its own; decorators, defaults and bases belong to the scope around it."""
        inner = Scope(node, scope)
        if not isinstance(node, ast.ClassDef):
            for argument in arguments_of(node.args):
                inner.values.setdefault(argument.arg, []).append(None)
        body = node.body if isinstance(node.body, list) else [node.body]
        inside = {id(child) for child in body}
        for child in ast.iter_child_nodes(node):
            self._visit(child, inner if id(child) in inside else scope, node)

    # --- asking

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module that is meant; a relative import of a script without a package keeps its dots."""
        if not node.level or not self.package:
            return "." * node.level + (node.module or "")
        base = self.package[: len(self.package) - node.level + 1]
        return ".".join((*base, *(node.module or "").split("."))).strip(".")

    def lookup(self, name: str, scope: Scope) -> Scope | None:
        """The scope in which `name`, read in `scope`, is bound; class bodies are not seen from their methods."""
        current: Scope | None = scope
        while current:
            seen = current is scope or not isinstance(current.node, ast.ClassDef)
            if seen and current.binds(name) and name not in current.outer:
                return current
            current = current.parent
        return None

    def name(self, node: ast.AST | None) -> str | None:
        """The qualified name of an expression, or None."""
        if node not in self._names:
            name = self._name(node, set())
            if name and self.others and not name.startswith((SCRIPT, "builtins.")):
                name = self.others.meaning(name)
            self._names[node] = canonical(name) if name else None
        return self._names[node]

    def exported(self, name: str) -> str | None:
        """What another module gets that imports a name from this one; None if this one does not have it."""
        if name in self.top.imports:
            return self.top.imports[name]
        if name in self.top.definitions or name in self.top.values:
            values = self.top.values.get(name, [])
            alias = self._name(values[0], set()) if len(values) == 1 else None
            return alias if alias and not alias.startswith((SCRIPT, "builtins.")) else f"{SCRIPT}.{name}"
        return self.from_star(name)

    def from_star(self, name: str) -> str | None:
        for star in reversed(self.stars):
            if name in STAR_NAMES.get(star, ()) or self.others and self.others.binds(star, name):
                return f"{star}.{name}"
        return None

    def _name(self, node: ast.AST | None, seen: set[ast.AST]) -> str | None:
        if node is None or node in seen:
            return None
        seen.add(node)
        if isinstance(node, ast.Attribute):
            owner = self._name(node.value, seen)
            return f"{canonical(owner)}.{node.attr}" if owner else None
        if isinstance(node, ast.Name):
            return self._name_of_name(node, seen)
        return None

    def _name_of_name(self, node: ast.Name, seen: set[ast.AST]) -> str | None:
        scope = self.lookup(node.id, self.scope_of[node])
        if scope is None:
            return self._unbound(node.id)
        if node.id in scope.imports:
            return scope.imports[node.id]
        if node.id in scope.definitions:
            return f"{SCRIPT}.{node.id}"
        values = scope.values[node.id]
        if len(values) == 1 and isinstance(values[0], (ast.Name, ast.Attribute)):
            return self._name(values[0], seen)
        return None

    def _unbound(self, name: str) -> str | None:
        return self.from_star(name) or (f"builtins.{name}" if hasattr(builtins, name) else None)

    def value(self, node: ast.AST | None) -> ast.AST | None:
        """Follow a name that is bound once to an expression; anything else is returned as it is."""
        for _ in range(10):  # a = b; b = c; ... ends somewhere
            if not isinstance(node, ast.Name):
                return node
            scope = self.lookup(node.id, self.scope_of[node])
            values = scope.values.get(node.id, []) if scope else []
            if len(values) != 1 or values[0] is None:
                return node
            node = values[0]
        return node

    def definition(self, node: ast.AST) -> ast.AST | None:
        """The function or class of this script that a name means."""
        if not isinstance(node, ast.Name):
            return None
        scope = self.lookup(node.id, self.scope_of[node])
        return scope.definitions.get(node.id) if scope else None

    def definitions(self, node: ast.AST) -> list[ast.AST]:
        """Every function or class of this script that a name may mean: it may be defined anew on the way."""
        scope = self.lookup(node.id, self.scope_of[node]) if isinstance(node, ast.Name) else None
        return scope.every.get(node.id, []) if scope and isinstance(node, ast.Name) else []

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> Function | ast.Lambda | None:
        """The innermost function whose body holds the node."""
        scope: Scope | None = self.scope_of[node]
        while scope:
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return scope.node
            scope = scope.parent
        return None

    def owner_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose body (methods included) holds the node."""
        scope: Scope | None = self.scope_of[node]
        while scope:
            if isinstance(scope.node, ast.ClassDef):
                return scope.node
            scope = scope.parent
        return None


def arguments_of(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (argument for argument in (arguments.vararg, arguments.kwarg) if argument)


def _bind(node: ast.AST, scope: Scope, scopes: Scopes) -> None:
    """Note what a node binds in its scope."""
    if isinstance(node, ast.expr):  # as most nodes are
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            _add(scope, node.id, _assigned(node, scopes))
    elif isinstance(node, ast.Import):
        _bind_import(node, scope)
    elif isinstance(node, ast.ImportFrom):
        _bind_from(node, scope, scopes)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope.definitions[node.name] = node
        scope.every.setdefault(node.name, []).append(node)
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        scope.outer.update(node.names)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        _add(scope, node.name, None)


def _bind_import(node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        bound = alias.asname or alias.name.split(".")[0]
        scope.imports[bound] = alias.name if alias.asname else bound


def _bind_from(node: ast.ImportFrom, scope: Scope, scopes: Scopes) -> None:
    module = scopes.absolute(node)
    for alias in node.names:
        if alias.name == "*":
            scopes.stars.append(module)
        else:
            scope.imports[alias.asname or alias.name] = f"{module}.{alias.name}"


def _add(scope: Scope, name: str, value: ast.expr | None) -> None:
    target = scope
    while (
        name in target.outer and target.parent
    ):  # `global x`: what is bound here belongs to the scope outside
        target = target.parent
    target.values.setdefault(name, []).append(value)


def _assigned(node: ast.Name, scopes: Scopes) -> ast.expr | None:
    """The expression that a plain `name = expression` gives to the name."""
    parent = scopes.parents.get(node)
    if isinstance(parent, ast.Assign) and node in parent.targets:
        return parent.value
    if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) and parent.target is node:
        return parent.value
    return None
