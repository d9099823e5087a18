"""What each variable of a project is given, by assignments, tuples and arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.aliases import handed_over
from dp2ddp.codemod.idiomatic.remembered import once_a_project

DEEPEST = 8


@once_a_project
def values_of(facts: Facts) -> dict[object, list[ast.expr]]:
    """The expressions that each variable of the project is given."""
    program, values = facts.program, dict[object, list[ast.expr]]()
    for node in program.nodes(ast.Assign, ast.AugAssign):
        if isinstance(node, ast.AugAssign):
            values.setdefault(program.variable(node.target), []).append(node.value)
            continue
        assert isinstance(node, ast.Assign)
        for target in node.targets:
            for part, value in _pairs(target, node.value):
                values.setdefault(program.variable(part), []).append(value)
    for call in program.calls:
        for parameter, given in handed_over(program, call.node):
            values.setdefault(parameter, []).append(given)
    return values


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    each = parts if len(parts) == len(target.elts) else [value] * len(target.elts)
    for part, given in zip(target.elts, each, strict=True):
        yield from _pairs(part, given)


def origins(facts: Facts, node: ast.expr) -> list[ast.expr]:
    """What an expression may be, followed through names and arguments to where no name stands any more."""
    given, sources, pending, seen = values_of(facts), list[ast.expr](), [(node, 0)], set[ast.AST]()
    while pending:
        current, depth = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        values = (
            given.get(facts.program.variable(current), [])
            if isinstance(current, (ast.Name, ast.Attribute))
            else []
        )
        if values and depth < DEEPEST:
            pending += [(value, depth + 1) for value in values]
        else:
            sources.append(current)
    return sources
