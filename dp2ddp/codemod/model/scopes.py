"""Scopes of one file, and what their names are bound to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from dp2ddp.codemod.model.nodes import COMPREHENSIONS, DEFINITIONS, SCOPES

_WORDS = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_BINDING = {  # kinds of nodes that may bind a name
    *(*DEFINITIONS, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.withitem, ast.arg, ast.ExceptHandler),
}


class Binds(Enum):
    """How a name comes by its meaning."""

    IMPORT = "import"
    DEFINITION = "definition"
    VALUE = "value"  # `name = expression`
    ITEM = "item"  # `for name in expression`
    PART = "part"  # `name, other = expression`
    CONTEXT = "context"  # `with expression as name`
    CAUGHT = "caught"  # `except Error as name`
    PARAMETER = "parameter"
    CHANGE = "change"  # `name += 1`


@dataclass(frozen=True)
class Binding:
    """One place that binds a name."""

    how: Binds
    node: ast.AST | None = None  # the definition, or the expression
    dotted: str = ""  # what is imported
    whole: ast.expr | None = None  # what it is a part of, or the context that is entered


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
        self.in_order: list[ast.AST] = []  # all nodes, as in the text
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scope_of: dict[ast.AST, Scope] = {}
        self.stars: list[str] = []  # modules of which all names are imported
        # by name: what is set on anything, variables of classes too
        self.attributes: dict[str, list[Binding]] = {}
        self._read_all(tree)

    def _read_all(self, tree: ast.Module) -> None:
        pending: list[tuple[ast.AST, Scope]] = [(tree, self.top)]
        while pending:  # not recursive: expressions of generated code are deep
            node, scope = pending.pop()
            self.in_order.append(node)
            self.scope_of[node] = scope
            if isinstance(node, (ast.Global, ast.Nonlocal)) and scope is not self.top:
                # Python wants it above all that it is about
                scope.declared.update(dict.fromkeys(node.names, isinstance(node, ast.Global)))
            if type(node) in _BINDING:
                for name, binding in self._bound_by(node):
                    scope.bind(name, binding)
                self._read_targets(node, scope)
            children = _children(node)
            for child in children:
                self.parents[child] = node
            children.reverse()
            if isinstance(node, SCOPES):
                inner, outside = Scope(node, scope), set(_outside(node))
                pending += [(child, scope if child in outside else inner) for child in children]
            elif isinstance(node, ast.arguments) and scope.outer is not None:
                defaults = {*node.defaults, *node.kw_defaults}  # made where the function is, before it runs
                pending += [(child, scope.outer if child in defaults else scope) for child in children]
            else:
                pending += [(child, scope) for child in children]

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
            case ast.arg(arg=name):
                yield name, Binding(Binds.PARAMETER)
            case ast.ExceptHandler(name=str(name)):
                yield name, Binding(Binds.CAUGHT)

    def _read_targets(self, node: ast.AST, scope: Scope) -> None:
        for target, binding in settings(node):
            if isinstance(target, ast.Name):
                scope.bind(target.id, binding)
            is_of_class = isinstance(target, ast.Name) and isinstance(scope.node, ast.ClassDef)
            if binding.how is not Binds.CHANGE and (is_of_class or isinstance(target, ast.Attribute)):
                name = target.attr if isinstance(target, ast.Attribute) else target.id  # type: ignore[attr-defined]
                self.attributes.setdefault(name, []).append(binding)

    def home_of(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that `from ... import` names."""
        if not node.level:
            return node.module or ""
        package = self.package[: len(self.package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])


def settings(node: ast.AST) -> Iterator[tuple[ast.expr, Binding]]:
    """What a statement (or `name := ...`, a loop of a comprehension) sets, with what each is given."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _parts(target, Binding(Binds.VALUE, value))
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield target, Binding(Binds.VALUE, value)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield target, Binding(Binds.CHANGE)
        case ast.For(target=target, iter=items) | ast.AsyncFor(target=target, iter=items):
            yield from _parts(target, Binding(Binds.ITEM, items))
        case ast.comprehension(target=target, iter=items):
            yield from _parts(target, Binding(Binds.ITEM, items))
        case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
            yield from _parts(target, Binding(Binds.CONTEXT, whole=value))


def _parts(target: ast.expr, given: Binding) -> Iterator[tuple[ast.expr, Binding]]:
    """`a, b = c, d` one by one; else each of them is a part of what is given."""
    if isinstance(target, ast.Starred):
        target, given = target.value, _part_of(given)
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, given
        return
    parts = [_part_of(given)] * len(target.elts)
    match given:
        case Binding(how=Binds.VALUE, node=ast.Tuple(elts=values) | ast.List(elts=values)):
            if len(values) == len(target.elts):
                parts = [Binding(Binds.VALUE, value) for value in values]
    for each, part in zip(target.elts, parts, strict=True):
        yield from _parts(each, part)


def _part_of(given: Binding) -> Binding:
    whole = given.whole if given.whole is not None else given.node
    return Binding(Binds.PART, whole=whole)  # type: ignore[arg-type]  # an expression


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node, without words like `Load` and `Add`: these are one for all trees."""
    return [each for each in ast.iter_child_nodes(node) if not isinstance(each, _WORDS)]


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a definition that are read in the scope around it."""
    if isinstance(node, DEFINITIONS):
        yield from node.decorator_list
    if isinstance(node, ast.ClassDef):
        yield from (*node.bases, *node.keywords)
    elif isinstance(node, COMPREHENSIONS):
        yield node.generators[0].iter
