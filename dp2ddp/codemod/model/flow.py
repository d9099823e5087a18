"""Where a value comes from: through names, attributes, arguments and choices, to the expressions that make it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from dp2ddp.codemod.model.nodes import FUNCTIONS
from dp2ddp.codemod.model.scopes import Binds

if TYPE_CHECKING:
    from dp2ddp.codemod.model.modules import Module
    from dp2ddp.codemod.model.program import Program

Source = tuple["Module", ast.expr]


class Flow:
    """The origins of the values of a program. Attributes go by their names alone: `x.place`, `self.place`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[ast.expr, tuple[Source, ...]] = {}

    def origins(self, module: Module, node: ast.expr) -> tuple[Source, ...]:
        """All expressions that may make a value; the expression itself where nobody says what it is given."""
        if node not in self._known:
            self._known[node] = ((module, node),)  # what is given itself, in a circle, has no other origin
            given = list(self.given(module, node))
            sources = dict.fromkeys(source for each in given for source in self.origins(*each))
            self._known[node] = tuple(sources) or ((module, node),)
        return self._known[node]

    def given(self, module: Module, node: ast.expr) -> Iterator[Source]:
        """What an expression is given, one step back."""
        match node:
            case ast.IfExp(body=body, orelse=other):
                yield from ((module, body), (module, other))
            case ast.BoolOp(values=values):
                yield from ((module, value) for value in values)
            case ast.Call(func=ast.Name(id="int" | "str"), args=[inner], keywords=[]):
                yield module, inner
            case ast.NamedExpr(value=value):
                yield module, value
            case ast.Attribute(attr=attr):
                yield from self._assigned.get(attr, ())
            case ast.Name():
                yield from self._given_to_name(module, node)

    def _given_to_name(self, module: Module, node: ast.Name) -> Iterator[Source]:
        for binding in module.bindings(node):
            if binding.how is Binds.VALUE and isinstance(binding.node, ast.expr):
                yield module, binding.node
            elif binding.how is Binds.IMPORT:
                yield from self._given_to_import(binding.dotted)
        scope = module.scope_of[node].lookup(node.id)
        if scope is not None and isinstance(scope.node, FUNCTIONS):
            yield from self._given_to_parameter(module, scope.node, node.id)

    def _given_to_import(self, dotted: str) -> Iterator[Source]:
        """`from settings import gpu`."""
        home, _, name = dotted.rpartition(".")
        other = self.program.by_name.get(home)
        for binding in other.top.bindings.get(name, ()) if other else ():
            if other and binding.how is Binds.VALUE and isinstance(binding.node, ast.expr):
                yield other, binding.node

    def _given_to_parameter(self, module: Module, function: ast.AST, name: str) -> Iterator[Source]:
        """The arguments of calls, and the default where a call gives none."""
        if isinstance(function, ast.Lambda) or not isinstance(
            function, (ast.FunctionDef, ast.AsyncFunctionDef)
        ):
            return
        places = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        owner = module.parents[function]
        is_method = isinstance(owner, ast.ClassDef) and places[:1] in (["self"], ["cls"])
        position = places.index(name) - is_method if name in places else None
        if position == -1:
            return  # `self`: no call gives it
        calls = [*self.program.calls_of(module, function)]
        if function.name == "__init__" and isinstance(owner, ast.ClassDef):
            calls = [*self.program.calls_of(module, owner)]
        given = [(other, call.argument(position, name)) for other, call in calls]
        yield from ((other, argument) for other, argument in given if argument is not None)
        if not given or any(argument is None for _, argument in given):
            default = _default(function, name)
            if default is not None:
                yield module, default

    @cached_property
    def _assigned(self) -> dict[str, list[Source]]:
        """What attributes are set to, by their names."""
        assigned: dict[str, list[Source]] = {}
        for module in self.program.modules:
            for node in module.all(ast.Assign):
                for target, value in pairs(node):
                    if isinstance(target, ast.Attribute):
                        assigned.setdefault(target.attr, []).append((module, value))
        return assigned


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment with what each is given: also of `a, b = x, y`."""
    for target in node.targets:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)):
            if len(target.elts) == len(node.value.elts):
                yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = {
        each.arg: value
        for each, value in zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True)
    }
    defaults |= {
        each.arg: value
        for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if value is not None
    }
    return defaults.get(name)
