"""Scopes of one file, and what their names are bound to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from dp2ddp.codemod.model.nodes import COMPREHENSIONS, DEFINITIONS, FUNCTIONS, SCOPES

_WORDS = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_BINDING = {  # kinds of nodes that may bind a name
    *(*DEFINITIONS, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.NamedExpr),
    *(ast.Name, ast.arg, ast.ExceptHandler),
}


class Binds(Enum):
    """How a name comes by its meaning."""

    IMPORT = "import"
    DEFINITION = "definition"
    VALUE = "value"  # `name = expression`
    ITEM = "item"  # `for name in expression`
    OTHER = "other"  # a parameter, `with`, unpacking: what it holds cannot be read off


@dataclass(frozen=True)
class Binding:
    """One place that binds a name."""

    how: Binds
    node: ast.AST | None = None  # the definition, or the expression
    dotted: str = ""  # what is imported


@dataclass
class Scope:
    """The names of a module, class, function or comprehension."""

    node: ast.AST
    outer: Scope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    declared: dict[str, bool] = field(default_factory=dict)  # by `global` (True) and `nonlocal`

    @property
    def top(self) -> Scope:
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope

    def bind(self, name: str, binding: Binding) -> None:
        """Bind a name here, or where `global` and `nonlocal` say."""
        scope = self
        if name in self.declared:
            scope = self.top if self.declared[name] else self.outer or self
        scope.bindings.setdefault(name, []).append(binding)

    def imported(self) -> Iterator[str]:
        """The dotted names of what is imported here."""
        for bindings in self.bindings.values():
            yield from (each.dotted for each in bindings if each.how is Binds.IMPORT)

    def lookup(self, name: str) -> Scope | None:
        """The scope that a name used here belongs to; names of classes are not seen from functions inside them."""
        scope: Scope | None = self
        while scope is not None:
            sees = scope is self or not isinstance(scope.node, ast.ClassDef)
            if sees and name in scope.bindings and name not in scope.declared:
                return scope
            scope = scope.outer
        return None


class Reader:
    """Reads the tree of a file once: parents, scopes, bindings, star imports."""

    def __init__(self, tree: ast.Module, package: tuple[str, ...]) -> None:
        self.package = package
        self.top = Scope(tree)
        self.nodes: list[ast.AST] = []  # in the order of the text
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scope_of: dict[ast.AST, Scope] = {}
        self.stars: list[str] = []  # modules of which all names are imported
        self._read_all(tree)

    def _read_all(self, tree: ast.Module) -> None:
        pending: list[tuple[ast.AST, Scope]] = [(tree, self.top)]
        while pending:  # not recursive: expressions of generated code are deep
            node, scope = pending.pop()
            self.nodes.append(node)
            self.scope_of[node] = scope
            if type(node) in _BINDING:
                for name, binding in self._bound_by(node):
                    scope.bind(name, binding)
            children = _children(node)
            for child in children:
                self.parents[child] = node
            children.reverse()
            if isinstance(node, SCOPES):
                inner, outside = self._inner(node, scope), set(_outside(node))
                pending += [(child, scope if child in outside else inner) for child in children]
            else:
                pending += [(child, scope) for child in children]

    def _inner(self, node: ast.AST, scope: Scope) -> Scope:
        inner = Scope(node, scope)
        for statement in _declarations(node):
            inner.declared.update(dict.fromkeys(statement.names, isinstance(statement, ast.Global)))
        return inner

    def _bound_by(self, node: ast.AST) -> Iterator[tuple[str, Binding]]:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    first = alias.name.partition(".")[0]
                    dotted = alias.name if alias.asname else first
                    yield alias.asname or first, Binding(Binds.IMPORT, node, dotted)
            case ast.ImportFrom(names=aliases):
                home = self.home_of(node)
                self.stars += [home for alias in aliases if alias.name == "*"]
                for alias in aliases:
                    if alias.name != "*":
                        yield alias.asname or alias.name, Binding(Binds.IMPORT, node, f"{home}.{alias.name}")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, Binding(Binds.DEFINITION, node)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield target.id, Binding(Binds.VALUE, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, Binding(Binds.VALUE, value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                yield name, Binding(Binds.VALUE, value)
            case ast.Name(id=name, ctx=ast.Store()) if not self._is_plain_target(node):
                loop = self.parents.get(node)
                is_loop = isinstance(loop, (ast.For, ast.comprehension)) and loop.target is node
                yield name, Binding(Binds.ITEM, loop.iter) if is_loop else Binding(Binds.OTHER)  # type: ignore[union-attr]
            case ast.arg(arg=name):
                yield name, Binding(Binds.OTHER)
            case ast.ExceptHandler(name=str(name)):
                yield name, Binding(Binds.OTHER)

    def _is_plain_target(self, node: ast.AST) -> bool:
        parent = self.parents.get(node)
        is_target = isinstance(parent, ast.Assign) and node in parent.targets
        return is_target or isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) and parent.value is not None

    def home_of(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that `from ... import` names."""
        if not node.level:
            return node.module or ""
        package = self.package[: len(self.package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node, without words like `Load` and `Add`: these are one for all trees."""
    children: list[ast.AST] = []
    for field_name in node._fields:
        value = getattr(node, field_name, None)
        if isinstance(value, list):
            children += [each for each in value if isinstance(each, ast.AST) and not isinstance(each, _WORDS)]
        elif isinstance(value, ast.AST) and not isinstance(value, _WORDS):
            children.append(value)
    return children


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a definition that are read in the scope around it."""
    if isinstance(node, DEFINITIONS):
        yield from node.decorator_list
    if isinstance(node, ast.ClassDef):
        yield from (*node.bases, *node.keywords)
    elif isinstance(node, COMPREHENSIONS):
        yield node.generators[0].iter


def _declarations(node: ast.AST) -> Iterator[ast.Global | ast.Nonlocal]:
    """`global` and `nonlocal` of a function, not those of functions inside it."""
    pending = list(getattr(node, "body", ())) if not isinstance(node, ast.Lambda) else []
    while pending:
        statement = pending.pop()
        if isinstance(statement, (ast.Global, ast.Nonlocal)):
            yield statement
        elif not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            pending += [
                child
                for child in ast.iter_child_nodes(statement)
                if isinstance(child, (ast.stmt, ast.ExceptHandler))
            ]
