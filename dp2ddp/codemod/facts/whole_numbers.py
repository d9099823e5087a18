"""Whole numbers that can be read off the text: constants, their names, defaults of options, lengths of literals."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from functools import cached_property

from dp2ddp.codemod.facts.origins import all_given
from dp2ddp.codemod.facts.script import Script, Variable, literal

OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class WholeNumbers:
    """The numbers of a program."""

    def __init__(self, program: Script) -> None:
        self.program = program

    def largest(self, node: ast.expr, seen: frozenset[Variable] = frozenset()) -> int | None:
        """The largest number that an expression may be; None where any of them is not known."""
        value = literal(node)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                first, second = self.largest(left, seen), self.largest(right, seen)
                return None if first is None or second is None else OPERATORS[type(op)](first, second)
            case ast.Call(args=[counted]) if self.program.scopes.name(node.func) == "builtins.len":
                held = literal(self.program.scopes.value(counted))
                return len(held) if isinstance(held, (str, list, tuple, dict, set)) else None
            case ast.Name() | ast.Attribute():
                return self._largest_given(node, seen)
        return None

    def _largest_given(self, node: ast.Name | ast.Attribute, seen: frozenset[Variable]) -> int | None:
        variable = self.program.variable(node)
        given = self._given.get(variable, ())
        if not given and isinstance(node, ast.Attribute):
            return option_default(self.program, node.attr)
        if variable in seen:
            return None
        numbers = [self.largest(value, seen | {variable}) for value in given]
        known = [number for number in numbers if number is not None]
        return max(known) if known and len(known) == len(numbers) else None

    @cached_property
    def _given(self) -> dict[Variable, Sequence[ast.expr]]:
        given: dict[Variable, list[ast.expr]] = {}
        for variable, value in all_given(self.program):
            given.setdefault(variable, []).append(value)
        return {variable: tuple(dict.fromkeys(values)) for variable, values in given.items()}


def option_default(program: Script, name: str) -> int | None:
    """The default of a command line's option, where it is a whole number."""
    for call in program.calls:
        if call.method == "add_argument" and name in _destinations(call.node):
            value = literal(call.argument(None, "default"))
            return value if isinstance(value, int) and not isinstance(value, bool) else None
    return None


def _destinations(call: ast.Call) -> set[str]:
    given = [literal(keyword.value) for keyword in call.keywords if keyword.arg == "dest"] or [
        literal(argument) for argument in call.args
    ]
    return {text.lstrip("-").replace("-", "_") for text in given if isinstance(text, str)}
