"""Orders that differ from process to process: Python salts the hashes of strings anew in each one.

Parameters and modules are hashed by their addresses, which no seed makes the same.

A set is harmless where only its members or its size matter. One that leaves our sight (returned, passed on, kept
somewhere) counts as walked over: the price of an error is one word in the launch line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Script

_MAKERS = ("builtins.set", "builtins.frozenset")
_ORDERLESS = {
    f"builtins.{name}" for name in ("len", "sorted", "min", "max", "any", "all", "isinstance", "bool")
}
_ORDERLESS |= set(_MAKERS)  # what they make is looked at as well
_OF_MEMBERS = {"add", "discard", "remove", "clear", "issubset", "issuperset", "isdisjoint"}
_OF_MEMBERS |= {"difference_update", "intersection_update", "symmetric_difference_update"}
_GIVES_A_SET = {"union", "intersection", "difference", "symmetric_difference", "copy"}
_OF_OTHERS = (_OF_MEMBERS | _GIVES_A_SET) - {"add"}
_PARTS = {"parameters", "modules", "children", "buffers"}
_NAMED_PARTS = {f"named_{name}" for name in _PARTS}
_LOOPS = (ast.GeneratorExp, ast.ListComp)
_CONDITIONS = (ast.If, ast.IfExp, ast.While, ast.Assert, ast.Compare, ast.UnaryOp, ast.Expr)


def hash_orders(script: Script) -> list[ast.expr]:
    """Where an order may come from the hashes of strings, each place once."""
    places: list[ast.expr] = [*_named(script, ("builtins.hash",)), *_dunders(script)]
    places += [node for node in _named(script, _MAKERS) if _is_handed_on(script, node)]
    sets = (node for node in _sets(script) if not _holds_parts(node))
    return _sorted([*places, *(place for node in sets for place in _walks(script, node, frozenset()))])


def address_orders(script: Script) -> list[ast.expr]:
    """Where an order comes from the addresses of parameters or modules, each place once."""
    sets = (node for node in _sets(script) if _holds_parts(node))
    return _sorted([place for node in sets for place in _walks(script, node, frozenset())])


def _sorted(places: list[ast.expr]) -> list[ast.expr]:
    return sorted(set(places), key=lambda node: (node.lineno, node.col_offset))


def _holds_parts(node: ast.expr) -> bool:
    """Whether a set has parameters or modules in it: `set(net.parameters())`, `{p for n, p in named_parameters()}`."""
    members = node.args[0] if isinstance(node, ast.Call) and node.args else node
    if not isinstance(members, (ast.SetComp, *_LOOPS)):
        return _gives(members, _PARTS)
    member = members.elt.id if isinstance(members.elt, ast.Name) else None
    return any(
        isinstance(target := part.target, ast.Name)
        and target.id == member
        and _gives(part.iter, _PARTS)
        or isinstance(target, ast.Tuple)
        and isinstance(last := target.elts[-1], ast.Name)
        and last.id == member
        and _gives(part.iter, _NAMED_PARTS)
        for part in members.generators
    )


def _gives(node: ast.expr, methods: set[str]) -> bool:
    """`net.parameters()`, also handed on: `filter(wanted, net.parameters())`."""
    if not isinstance(node, ast.Call):
        return False
    gives_them = isinstance(node.func, ast.Attribute) and node.func.attr in methods
    return gives_them or any(_gives(argument, methods) for argument in node.args)


def _named(script: Script, names: tuple[str, ...]) -> Iterator[ast.expr]:
    """Where a builtin is called, or handed on: `map(hash, words)`."""
    words = {name.rpartition(".")[2] for name in names}
    for word in words:
        for node in script.by_word.get(word, ()):
            if script.scopes.name(node) in names:
                yield node


def _dunders(script: Script) -> Iterator[ast.expr]:
    """`word.__hash__()`; not where a class defines its own by another's."""
    return (node for node in script.by_word.get("__hash__", ()) if _is_read(node))


def _is_handed_on(script: Script, maker: ast.expr) -> bool:
    """`map(set, lines)`, `defaultdict(set)`: sets are made where we do not see them."""
    parent = script.scopes.parents[maker]
    if isinstance(parent, ast.keyword):
        return True
    if not isinstance(parent, ast.Call) or parent.func is maker:
        return False
    return script.scopes.name(parent.func) not in ("builtins.isinstance", "builtins.issubclass")


def _sets(script: Script) -> Iterator[ast.expr]:
    for node in script.nodes(ast.Set, ast.SetComp):
        if not (isinstance(node, ast.Set) and all(_is_number(element) for element in node.elts)):
            yield node  # type: ignore[misc]  # both kinds are expressions
    yield from (call.node for call in script.calls_of(*_MAKERS))
    yield from (node for node in script.nodes(ast.BinOp) if _is_of_keys(node))  # type: ignore[misc]


def _is_of_keys(node: ast.AST) -> bool:
    """`a.keys() - b.keys()`: a set."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    return any(
        isinstance(side, ast.Call) and getattr(side.func, "attr", "") in ("keys", "items") and not side.args
        for side in sides
    )


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _walks(script: Script, node: ast.expr, seen: frozenset[str]) -> Iterator[ast.expr]:
    """Where the order of this set may matter: a walk, or where we lose sight of it."""
    parent = script.scopes.parents[node]
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and parent.value is node:
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        for target in targets:
            yield from _walks_of_target(script, target, node, seen)
    elif (whole := _set_made_of(script, node, parent)) is not None:
        yield from _walks(script, whole, seen)
    elif not _is_orderless(script, node, parent):
        yield node


def _walks_of_target(
    script: Script, target: ast.expr, node: ast.expr, seen: frozenset[str]
) -> Iterator[ast.expr]:
    """The walks over what a name or an attribute holds, wherever it is read in this file."""
    name = (
        target.id
        if isinstance(target, ast.Name)
        else target.attr
        if isinstance(target, ast.Attribute)
        else ""
    )
    if not name:
        yield node  # put into a container, or taken apart
    elif name not in seen:
        for read in script.nodes(type(target)):
            if name in (getattr(read, "id", ""), getattr(read, "attr", "")) and _is_read(read):
                yield from _walks(script, read, seen | {name})  # type: ignore[arg-type]  # a Name or an Attribute


def _is_read(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


def _set_made_of(script: Script, node: ast.expr, parent: ast.AST) -> ast.expr | None:
    """What a set goes into as a set: `one | other`, `one or other`, `one.union(other)`."""
    if isinstance(parent, (ast.BinOp, ast.BoolOp)) or (
        isinstance(parent, ast.IfExp) and parent.test is not node
    ):
        return parent
    call = script.scopes.parents.get(parent)
    if isinstance(parent, ast.Attribute) and parent.attr in _GIVES_A_SET and isinstance(call, ast.Call):
        return call if call.func is parent else None
    return None


def _is_orderless(script: Script, node: ast.expr, parent: ast.AST) -> bool:
    if isinstance(parent, _CONDITIONS) or (isinstance(parent, ast.AugAssign) and parent.value is node):
        return True
    if isinstance(parent, ast.Attribute):
        return parent.attr in _OF_MEMBERS or _is_unused_update(script, parent)
    if isinstance(parent, ast.Call):
        return script.scopes.name(parent.func) in _ORDERLESS or _is_about_members(parent)
    if isinstance(parent, ast.comprehension):
        return _feeds_the_orderless(script, parent)
    return False


def _is_unused_update(script: Script, method: ast.Attribute) -> bool:
    """`seen.update(...)` as a statement changes the set itself."""
    call = script.scopes.parents[method]
    return method.attr == "update" and isinstance(script.scopes.parents.get(call), ast.Expr)


def _is_about_members(call: ast.Call) -> bool:
    """`other.issubset(one)` and its like."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _OF_OTHERS


def _feeds_the_orderless(script: Script, part: ast.comprehension) -> bool:
    """`{f(x) for x in one}`, `sorted(x for x in one)`."""
    loop = script.scopes.parents[part]
    if isinstance(loop, ast.SetComp):
        return True
    call = script.scopes.parents[loop]
    return (
        isinstance(loop, _LOOPS)
        and isinstance(call, ast.Call)
        and script.scopes.name(call.func) in _ORDERLESS
    )
