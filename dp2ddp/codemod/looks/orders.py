"""Orders that differ from process to process: Python salts the hashes of strings anew in each one.

A set is harmless where only its members or its size are asked for, at once or under the name that it is kept in. Any
other one counts as walked over: the price of an error is one word in the launch line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Module
from dp2ddp.source.parsing import nodes_in

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
        is_of_numbers = isinstance(node, ast.Set) and all(_is_number(each) for each in node.elts)
        if not is_of_numbers and _is_walked(module, node, set()):
            yield node
    for name in SETS:
        for node in module.mentions.get(name, ()):
            parent = module.parents[node]
            is_call = isinstance(parent, ast.Call) and parent.func is node
            if _is_walked(module, parent, set()) if is_call else not _is_question(module, parent):
                yield node


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _is_question(module: Module, parent: ast.AST) -> bool:
    """`isinstance(x, set)`, an annotation."""
    if isinstance(parent, ast.Tuple):
        parent = module.parents[parent]
    asks = isinstance(parent, ast.Call) and module.name(parent.func) in (
        "builtins.isinstance",
        "builtins.issubclass",
    )
    return asks or isinstance(parent, (ast.arg, ast.AnnAssign, ast.Subscript, ast.Compare, ast.FunctionDef))


def _is_walked(module: Module, node: ast.AST, seen: set[str]) -> bool:
    """Whether the order of this set may matter."""
    parent = module.parents[node]
    match parent:
        case ast.Call(func=func) if func is not node:
            return not _reads(module, parent) and not _asks_members(func)
        case ast.Attribute(attr=attr):
            return attr not in OF_MEMBERS
        case ast.comprehension():
            loop = module.parents[parent]
            is_read = isinstance(loop, ast.SetComp) or _reads(module, module.parents[loop])
            return not is_read or _does_more(module, loop, parent)
        case ast.BinOp() | ast.BoolOp():
            return _is_walked(module, parent, seen)
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
            return _is_walked_later(module, target, seen)
    return not isinstance(parent, ASKING)


def _reads(module: Module, call: ast.AST) -> bool:
    """`sorted(words)`; not by a key, for which two of them may be alike."""
    return (
        isinstance(call, ast.Call)
        and module.name(call.func) in (*READERS, *SETS)
        and not any(each.arg == "key" for each in call.keywords)
    )


def _does_more(module: Module, loop: ast.AST, part: ast.comprehension) -> bool:
    """Whether something is called for each member that may draw, or run a model: `fitness(each) for each in found`."""
    own = {node.id for node in nodes_in(part.target) if isinstance(node, ast.Name)}
    before = {*nodes_in(part.iter)}
    calls = (node.func for node in nodes_in(loop) if isinstance(node, ast.Call) and node not in before)
    return any(
        not (module.name(func) or "").startswith("builtins.")
        and not (
            isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in own
        )
        for func in calls
    )


def _asks_members(func: ast.expr) -> bool:
    return isinstance(func, ast.Attribute) and func.attr in OF_MEMBERS


def _is_walked_later(module: Module, target: ast.Name | ast.Attribute, seen: set[str]) -> bool:
    """Whether a set is walked over by the name that it is kept in, anywhere in the program."""
    name = _word(target)
    if name in seen:
        return False
    seen.add(name)
    uses = (
        (other, node)
        for other in module.program.modules
        for node in other.nodes(ast.Name, ast.Attribute)
        if isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, ast.Load)
        and _word(node) == name
    )
    return any(_is_walked(other, use, seen) for other, use in uses)


def _word(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr
