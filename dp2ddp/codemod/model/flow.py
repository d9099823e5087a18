"""Where a value comes from: through names, attributes, arguments and choices, to the expressions that make it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from typing import TYPE_CHECKING

from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS, defaults, looked_up, places
from dp2ddp.codemod.model.scopes import Binding, Binds, settings

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

    def makers(self, module: Module, node: ast.expr, seen: Set[ast.expr] = frozenset()) -> Iterator[Source]:
        """The functions and classes whose results a value is, as they are named: `Net` of `Net(3).cuda()`.

        Of one that is looked up, `getattr(models, name)(3)`, that is where it is looked up.
        """
        for home, origin in self.origins(module, node):
            if not isinstance(origin, ast.Call) or origin in seen:
                continue
            match origin.func:
                case func if (taken := looked_up(func)) and home.name(func) is None:
                    yield home, taken[0]
                case ast.Attribute(value=inner) | (ast.Call() as inner) if home.name(origin.func) is None:
                    yield from self.makers(home, inner, seen | {origin})
                case func:
                    yield home, func

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
                yield from _values(self.program.attributes.get(attr, ()))
            case ast.Name():
                yield from self._given_to_name(module, node)

    def _given_to_name(self, module: Module, node: ast.Name) -> Iterator[Source]:
        for binding in module.bindings(node):
            if binding.how is Binds.IMPORT:  # `from settings import gpu`
                home, _, name = binding.dotted.rpartition(".")
                other = self.program.by_name.get(home)
                yield from (
                    _values((other, each) for each in other.top.bindings.get(name, ())) if other else ()
                )
            elif binding.how is Binds.PARAMETER:
                scope = module.scope(node)
                yield from self._given_to_parameter(module, scope.node, node.id) if scope else ()
            else:
                yield from _values([(module, binding)])

    def _given_to_parameter(self, module: Module, function: ast.AST, name: str) -> Iterator[Source]:
        """The arguments of calls, and the default where a call gives none."""
        if not isinstance(function, NAMED_FUNCTIONS):
            return
        if name in {each.arg for each in places(function)} - {each.arg for each in module.taken(function)}:
            return  # `self`: no call gives it
        owner = module.parents[function]
        called = owner if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function
        calls = self.program.calls_of(module, called)
        given = [(other, module.given(function, call, name)) for other, call in calls]
        yield from ((other, argument) for other, argument in given if argument is not None)
        default = defaults(function).get(name)
        if default is not None and (not given or any(argument is None for _, argument in given)):
            yield module, default


def _values(bindings: Iterable[tuple[Module, Binding]]) -> Iterator[Source]:
    for module, binding in bindings:
        if binding.how is Binds.VALUE and isinstance(binding.node, ast.expr):
            yield module, binding.node


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment with what each is given: also of `a, b = x, y`."""
    return ((target, each.node) for target, each in settings(node) if isinstance(each.node, ast.expr))
