"""What an expression of a forward may be: made there, or something that outlives it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from dp2ddp.codemod.knowledge.reading_methods import HANDING_ON, NEW_CONTAINERS, VIEWS
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import Function
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Scope
from dp2ddp.source.parsing import nodes_in

Parameter: TypeAlias = tuple[ast.AST, str]  # the function, and the name


class Level(IntEnum):
    """How far a thing is from what outlives a forward."""

    NEW = 0
    HOLDS_SHARED = 1  # is new, but what is in it is not
    SHARED = 2


@dataclass(frozen=True)
class Source:
    """One thing that a name may hold: an expression, or an element of it; None: a parameter."""

    value: ast.expr | None
    is_element: bool = False


class Attributes:
    """What the program sets attributes and class variables to, by their names alone."""

    def __init__(self, program: Program) -> None:
        self.values: dict[str, list[tuple[Module, ast.expr | None]]] = {}
        self.setters: dict[str, list[tuple[Module, ast.AST, Source]]] = {}
        self.parameters = {"weight", "bias"}
        self.buffers: set[str] = set()
        for module in program.modules:
            self._read(module)

    def _read(self, module: Module) -> None:
        for target, source in assignments(module):
            name = _attribute(module, target)
            if name:
                value = None if source.is_element else source.value
                self.values.setdefault(name, []).append((module, value))
                self.setters.setdefault(name, []).append((module, target, source))
                is_made = isinstance(value, ast.Call)
                if is_made and (module.name(value.func) or "").endswith("nn.Parameter"):  # type: ignore[union-attr]
                    self.parameters.add(name)
        for call in module.calls:
            given = call.argument(0, "name")
            if isinstance(given, ast.Constant):
                if call.method == "register_buffer":
                    self.buffers.add(str(given.value))
                elif call.method == "register_parameter":
                    self.parameters.add(str(given.value))

    def is_copied(self, name: str) -> bool:
        """Whether a replica has one of its own: a buffer or a parameter, which the wrapper looks after."""
        return name in self.parameters or name in self.buffers

    def is_constant(self, name: str) -> bool:
        """Whether it only ever is a number, a text, None: what nobody can change in place."""
        values = self.values.get(name)
        return bool(values) and all(_is_constant(value) for _, value in values or ())


class Sharing:
    """Levels of expressions. `parameters` and `outer` grow while the forwards are looked at."""

    def __init__(self, program: Program) -> None:
        self.program, self.attributes = program, Attributes(program)
        self.parameters: set[Parameter] = set()  # that somebody hands something shared
        self.outer: set[ast.AST] = set()  # functions that run before the forward; their variables outlive it
        self.returns: dict[str, list[tuple[Module, Function]]] = {}  # functions that run in forwards, by name
        self._sources: dict[Module, dict[tuple[int, str], list[Source]]] = {}
        self._returned_by: dict[ast.AST, list[ast.expr | None]] = {}
        self._names: dict[ast.AST, str | None] = {}
        self._followed: set[tuple[int, str]] = set()  # names and functions being followed: no circle twice

    def is_shared(self, module: Module, node: ast.expr) -> bool:
        return self.level(module, node) is Level.SHARED

    def level(self, module: Module, node: ast.expr | None) -> Level:
        """How far an expression is from what outlives the forward."""
        match node:
            case ast.Name():
                return self._of_name(module, node)
            case ast.Attribute(value=value, attr="data"):
                return Level.SHARED if self._may_be_parameter(module, value) else Level.NEW
            case ast.Attribute(value=value, attr=attr):
                if self.attributes.is_copied(attr) or self.attributes.is_constant(attr):
                    return Level.NEW
                return self._part(module, value)
            case ast.Subscript(value=value) | ast.Starred(value=value):
                return self._part(module, value)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return self._holding(module, parts)
            case ast.Dict(values=parts):
                return self._holding(module, parts)
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
                return self._holding(module, [part])
            case ast.DictComp(value=part):
                return self._holding(module, [part])
            case ast.IfExp(body=body, orelse=other):
                return max(self.level(module, body), self.level(module, other))
            case ast.BinOp(left=left, right=ast.List() as right):  # `self.layers + [x]`
                return self._holding(module, [left, right])
            case ast.BoolOp(values=parts):
                return max(self.level(module, part) for part in parts)
            case ast.NamedExpr(value=value):
                return self.level(module, value)
            case ast.Call(args=[_, ast.Constant(value="data"), *_]):  # getattr(parameter, "data")
                return Level.SHARED
            case ast.Call():
                return self._of_call(module, node)
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                return Level.SHARED
        return Level.NEW

    def _may_be_parameter(self, module: Module, node: ast.expr) -> bool:
        """Whether writing to `.data` may change a parameter, which no counter of versions shows."""
        if isinstance(node, ast.Name) and not self.is_shared(module, node):
            scope = module.scope_of[node].lookup(node.id)
            sources = self.sources(module).get((id(scope), node.id), [Source(None)])
            return any(
                not isinstance(each.value, (ast.Call, ast.BinOp)) or each.is_element for each in sources
            )
        return not isinstance(node, ast.Attribute) or node.attr not in self.attributes.buffers

    def _part(self, module: Module, whole: ast.expr) -> Level:
        return Level.SHARED if self.level(module, whole) else Level.NEW

    def _holding(self, module: Module, parts: list[ast.expr]) -> Level:
        return Level.HOLDS_SHARED if any(self.level(module, part) for part in parts) else Level.NEW

    def _of_call(self, module: Module, node: ast.Call) -> Level:
        name = self.name(module, node.func)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else (name or "").rpartition(".")[2]
        given = [*node.args, *(each.value for each in node.keywords)]
        returned = max((self._returned(*each) for each in self.returns.get(last, ())), default=Level.NEW)
        if returned:
            return returned
        if last == "copy" and name is None:
            return self._holding(module, [node.func.value])  # type: ignore[attr-defined]
        if (name or "").startswith("builtins.") and last in NEW_CONTAINERS:
            return self._holding(module, given)
        home, definition = module.definition(node.func) or (module, None)
        if isinstance(definition, ast.ClassDef) and not self._is_layer(home, definition):
            return Level.HOLDS_SHARED  # whatever it finds in its class
        if last in VIEWS:
            seen = [node.func.value] if isinstance(node.func, ast.Attribute) and name is None else given
            return max((self._part(module, each) for each in seen), default=Level.NEW)
        is_computed = name is None and not isinstance(node.func, (ast.Name, ast.Attribute))
        if is_computed or (name or "").startswith(HANDING_ON):
            return max((self._part(module, each) for each in given), default=Level.NEW)
        return Level.NEW

    def _is_layer(self, module: Module, node: ast.ClassDef) -> bool:
        return any((module.name(base) or "").startswith("torch.") for base in node.bases)

    def _returned(self, module: Module, function: Function) -> Level:
        key = (id(function), "return")
        if key in self._followed:
            return Level.NEW
        self._followed.add(key)
        level = max((self.level(module, value) for value in self.returned_by(function)), default=Level.NEW)
        self._followed.discard(key)
        return level

    def returned_by(self, function: Function) -> list[ast.expr | None]:
        if function not in self._returned_by:
            nodes = nodes_in(function)
            self._returned_by[function] = [
                *(each.value for each in nodes if isinstance(each, (ast.Return, ast.YieldFrom))),
                *(ast.List([each.value]) for each in nodes if isinstance(each, ast.Yield) and each.value),
            ]
        return self._returned_by[function]

    def name(self, module: Module, node: ast.expr) -> str | None:
        """As module.name, which is asked often here."""
        if node not in self._names:
            self._names[node] = module.name(node)
        return self._names[node]

    def _of_name(self, module: Module, node: ast.Name) -> Level:
        scope = module.scope_of[node].lookup(node.id)
        if scope is None or scope is module.top and module.name(node, follow=False):
            return Level.NEW if module.name(node) else Level.SHARED  # a function, a class, a library
        key = (id(scope), node.id)
        if key in self._followed:
            return Level.NEW
        sources = self.sources(module).get(key, [])
        outlives = scope is module.top or self.is_closure(module, node, scope)
        if outlives:
            is_constant = sources and all(
                not each.is_element and _is_constant(each.value) for each in sources
            )
            return Level.NEW if is_constant else Level.SHARED
        self._followed.add(key)
        level = max((self._of_source(module, scope, node.id, each) for each in sources), default=Level.NEW)
        self._followed.discard(key)
        return level

    def is_closure(self, module: Module, node: ast.AST, scope: Scope) -> bool:
        """Whether a name belongs to a function around, which has ended before the forward began."""
        return scope.node in self.outer and module.function_around(node) is not scope.node

    def _of_source(self, module: Module, scope: Scope, name: str, source: Source) -> Level:
        if source.value is None:
            return Level.SHARED if (scope.node, name) in self.parameters else Level.NEW
        return self._part(module, source.value) if source.is_element else self.level(module, source.value)

    def sources(self, module: Module) -> dict[tuple[int, str], list[Source]]:
        """By scope and name, what the names of a file may hold."""
        if module not in self._sources:
            sources: dict[tuple[int, str], list[Source]] = {}
            for target, source in assignments(module):
                if isinstance(target, (ast.Name, ast.arg)):
                    name = target.id if isinstance(target, ast.Name) else target.arg
                    scope = module.scope_of[target].lookup(name)
                    sources.setdefault((id(scope), name), []).append(source)
            self._sources[module] = sources
        return self._sources[module]


def assignments(module: Module) -> Iterator[tuple[ast.AST, Source]]:
    """Targets of a file, with what they are set to."""
    for node in module.nodes(
        ast.Assign,
        ast.AnnAssign,
        ast.NamedExpr,
        ast.For,
        ast.AsyncFor,
        ast.comprehension,
        ast.withitem,
        ast.arg,
    ):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _pairs(target, Source(value))
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                yield from _pairs(target, Source(value))
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                yield from _pairs(target, Source(value, is_element=True))
            case ast.comprehension(target=target, iter=value):
                yield from _pairs(target, Source(value, is_element=True))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                yield from _pairs(target, Source(value))
            case ast.arg():
                yield node, Source(None)


def _pairs(target: ast.expr, source: Source) -> Iterator[tuple[ast.AST, Source]]:
    """`a, b = c, d` one by one; else each part of the target is an element of the value."""
    if isinstance(target, ast.Starred):
        yield from _pairs(target.value, source)
    elif isinstance(target, (ast.Tuple, ast.List)):
        value = source.value
        one_by_one = (
            isinstance(value, (ast.Tuple, ast.List))
            and len(value.elts) == len(target.elts)
            and not source.is_element
        )
        for place, part in enumerate(target.elts):
            each = Source(value.elts[place]) if one_by_one else Source(value, is_element=True)  # type: ignore[union-attr]
            yield from _pairs(part, each)
    else:
        yield target, source


def _attribute(module: Module, target: ast.AST) -> str | None:
    """The name of an attribute that is set, or of a variable of a class."""
    if isinstance(target, ast.Attribute):
        return target.attr
    is_of_class = isinstance(target, ast.Name) and isinstance(module.scope_of[target].node, ast.ClassDef)
    return target.id if is_of_class else None  # type: ignore[attr-defined]


def _is_constant(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant() | ast.JoinedStr() | ast.Compare():
            return True
        case ast.UnaryOp(operand=inner):
            return _is_constant(inner)
        case ast.BinOp(left=left, right=right):
            return _is_constant(left) and _is_constant(right)
    return False
