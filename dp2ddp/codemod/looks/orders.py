"""Orders that differ from process to process: Python salts the hashes of strings anew in each one.

A set is harmless where only its members or its size are asked for, at once or under the name that it is kept in. Any
other one counts as walked over: the price of an error is one word in the launch line.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.looks.mentions import is_type_test
from dp2ddp.codemod.looks.uses import Answer, comes_only_to, kept_uses
from dp2ddp.codemod.model.modules import Module

SETS = ("builtins.set", "builtins.frozenset")
READERS = {
    f"builtins.{name}" for name in ("len", "sorted", "min", "max", "sum", "any", "all", "isinstance", "bool")
}
OF_MEMBERS = {"add", "discard", "remove", "clear", "update", "issubset", "issuperset", "isdisjoint"}
ASKING = (ast.Compare, ast.If, ast.IfExp, ast.While, ast.Assert, ast.UnaryOp, ast.Expr, ast.AugAssign)


def hash_orders(module: Module) -> Iterator[ast.AST]:
    """Where an order may come from the hashes of strings."""
    if not any(word in module.source.text for word in ("set(", "set)", "set,", "{", "hash")):
        return
    yield from (node for node in module.mentions.get("builtins.hash", ()))
    for node in (*module.all(ast.SetComp), *module.all(ast.Set)):
        has_one_order = isinstance(node, ast.Set) and (_is_one(node) or all(map(_is_number, node.elts)))
        if not has_one_order and not comes_only_to(module, node, _asks_no_order):
            yield node
    for name in SETS:
        for node in module.mentions.get(name, ()):
            call = module.call_of(node)
            if not (comes_only_to(module, call.node, _asks_no_order) if call else is_type_test(module, node)):
                yield node


def _is_one(node: ast.Set) -> bool:
    return len(node.elts) == 1 and not isinstance(node.elts[0], ast.Starred)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _asks_no_order(module: Module, parent: ast.AST, node: ast.AST) -> Answer:
    if (kept := kept_uses(module, node)) is not None:
        return kept
    match parent:
        case ast.Call(func=func) if func is not node:
            return _reads(module, parent) or isinstance(func, ast.Attribute) and func.attr in OF_MEMBERS
        case ast.Attribute(attr=attr):
            return attr in OF_MEMBERS
        case ast.BinOp() | ast.BoolOp():
            return None
    return isinstance(parent, ASKING)


def _reads(module: Module, call: ast.AST) -> bool:
    """`sorted(words)`; not by a key, for which two of them may be alike."""
    return (
        isinstance(call, ast.Call)
        and module.name(call.func) in (*READERS, *SETS)
        and not any(each.arg == "key" for each in call.keywords)
    )
