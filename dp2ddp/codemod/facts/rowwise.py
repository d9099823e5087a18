"""Expressions that treat each row of a batch alone: what comes out has the same rows, in their order.

Shapes are unknown, so only those forms count that keep the first dimension whatever the shape is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from dp2ddp.codemod.facts.script import Script, literal

ARITHMETIC = {"div", "mul", "add", "sub", "div_", "mul_", "add_", "sub_", "clamp", "clamp_", "pow"}
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def keeps_rows(script: Script, node: ast.expr, is_part: Callable[[ast.expr], bool]) -> bool:
    """Whether an expression is a part of the batch whose rows were computed one by one, with constants alone."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, OPERATORS):
            return is_part(left) and _is_number(right) or is_part(right) and _is_number(left)
        case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments, keywords=keywords):
            if script.scopes.name(node.func) == "torch.flatten":
                return (
                    bool(arguments)
                    and is_part(arguments[0])
                    and _keeps_first("flatten", arguments[1:], keywords)
                )
            if not is_part(value):
                return False
            if method in ("view", "reshape"):
                return not keywords and _is_view(script, arguments, script.told(value))
            return _keeps_first(method, arguments, keywords)
        case ast.Subscript(value=value, slice=ast.Tuple(elts=[ast.Slice(None, None, None), *rest])):
            return is_part(value) and all(_is_fixed(one) for one in rest)
    return False


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(literal(node), (int, float))


def _is_fixed(node: ast.expr) -> bool:
    """`3`, `:`, `1:4`, `None`: what it takes of a row depends on nothing."""
    if isinstance(node, ast.Slice):
        return all(one is None or _is_number(one) for one in (node.lower, node.upper, node.step))
    return _is_number(node) or isinstance(node, ast.Constant) and node.value in (None, Ellipsis)


def _keeps_first(method: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    """Methods that leave the first dimension where it is; a dimension from the end may be the first."""
    values = [literal(one) for one in (*arguments, *(one.value for one in keywords))]
    numbers = [one for one in values if isinstance(one, (int, float))]
    if len(numbers) != len(values) or not numbers:
        return False
    if method in ARITHMETIC:
        return True
    if method == "flatten":
        return numbers[0] >= 1 and len(numbers) == 1
    if method == "unsqueeze":
        return numbers[0] >= 1 or numbers[0] == -1
    if method in ("squeeze", "transpose"):
        return min(numbers) >= 1
    return method == "permute" and numbers[0] == 0


def _is_view(script: Script, arguments: list[ast.expr], name: str) -> bool:
    """`x.view(x.size(0), -1)`: the first number is that of the rows. (`view(-1, 784)` may make other rows.)"""
    if not arguments:
        return False
    first, *rest = arguments
    rows = (f"{name}.size(0)", f"len({name})", f"{name}.shape[0]", f"{name}.size()[0]")
    return script.told(first) in rows and all(_is_number(one) or _is_size(script, one, name) for one in rest)


def _is_size(script: Script, node: ast.expr, name: str) -> bool:
    """Another dimension than the first of the same tensor."""
    told = script.told(node)
    return any(told in (f"{name}.size({i})", f"{name}.shape[{i}]") for i in range(1, 6))
