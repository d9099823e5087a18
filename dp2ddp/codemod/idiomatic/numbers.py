"""Numbers that can be read off the text: a constant, a name that is bound to one, the default of an option."""

from __future__ import annotations

import ast

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.facts.whole_numbers import option_default
from dp2ddp.codemod.idiomatic.values import origins

MAKERS = of("torch", "randn rand zeros ones empty arange")
KEEPS = {"float", "long", "double", "to", "clamp"}


def number_of(facts: Facts, node: ast.expr | None) -> int | None:
    """A whole number, where the text says which: `64`, `BATCH = 64`, `args.batch_size` with its default."""
    numbers = {_number(facts, origin) for origin in origins(facts, node)} if node is not None else set()
    return numbers.pop() if len(numbers) == 1 else None


def _number(facts: Facts, node: ast.expr) -> int | None:
    value = literal(node)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return option_default(facts.program, node.attr) if isinstance(node, ast.Attribute) else None


def samples_of(facts: Facts, dataset: ast.expr | None) -> int | None:
    """How many samples a data set has: `TensorDataset(torch.randn(1000, 8), ...)`."""
    made = _made(facts, dataset)
    if made is None or facts.program.scopes.name(made.func) != "torch.utils.data.TensorDataset":
        return None
    first = _made(facts, made.args[0]) if made.args else None
    while first is not None and (facts.program.scopes.name(first.func) or "") not in MAKERS:
        inner = (
            first.func.value if isinstance(first.func, ast.Attribute) and first.func.attr in KEEPS else None
        )
        first = _made(facts, inner)
    return number_of(facts, first.args[0]) if first is not None and first.args else None


def _made(facts: Facts, node: ast.expr | None) -> ast.Call | None:
    """The one call that an expression comes from."""
    values = origins(facts, node) if node is not None else []
    return values[0] if len(values) == 1 and isinstance(values[0], ast.Call) else None
