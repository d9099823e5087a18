"""Caches: what a forward keeps under a key, and would compute alike on any rank at any time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.draws import draws
from dp2ddp.codemod.facts.script import Script

DEPTH = 6  # names that stand for other names: it ends somewhere
ABOUT = {"device", "dtype", "shape", "ndim", "is_cuda", "layout"}  # of a tensor, but not its numbers
ASKS = {"size", "dim", "numel", "new_zeros", "new_ones", "new_full", "new_empty", "type", "get_device"}


def is_cache_entry(script: Script, node: ast.AST, kept: ast.expr) -> bool:
    """`cache[n] = make(n)`: what is kept follows from its key, from shapes and from settings."""
    if not isinstance(node, ast.Assign) or _mentions(script, node.value, script.text_of(kept), DEPTH):
        return False
    keys: set[str] = set()
    for target in node.targets:
        while isinstance(target, ast.Subscript):
            keys |= _named(script, target.slice, DEPTH)
            target = target.value
    return _follows(script, node.value, keys, DEPTH)


def _mentions(script: Script, value: ast.AST, text: str, depth: int) -> bool:
    """Whether an expression, or a name in it, comes from what was there before."""
    for node in ast.walk(value):
        if isinstance(node, (ast.Name, ast.Attribute)) and script.text_of(node) == text:
            return True
        behind = script.scopes.value(node) if isinstance(node, ast.Name) else node
        if behind is not node and behind and depth and _mentions(script, behind, text, depth - 1):
            return True
    return False


def _named(script: Script, node: ast.AST, depth: int) -> set[str]:
    """The names in an expression, and those behind them: of `key`, of which `key = (h, w)`, also h and w."""
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    for inner in ast.walk(node):
        value = script.scopes.value(inner) if isinstance(inner, ast.Name) else None
        if depth and value is not None and value is not inner:
            names |= _named(script, value, depth - 1)
    return names


def _follows(script: Script, value: ast.AST, keys: set[str], depth: int) -> bool:
    """Whether an expression draws nothing, and takes no numbers but those of the key."""
    if any(_draws(script, node) for node in ast.walk(value)):
        return False
    return all(_is_known(script, node, keys, depth) for node in _taken(script, value))


def _draws(script: Script, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = script.scopes.name(node.func) or ""
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    return draws(name, method)


def _taken(script: Script, node: ast.AST) -> Iterator[ast.Name]:
    """The names whose values are used; not those that are only asked for a shape or a device."""
    if isinstance(node, ast.Attribute) and node.attr in ABOUT:
        return
    if isinstance(node, ast.Call):
        is_question = isinstance(node.func, ast.Attribute) and node.func.attr in ASKS
        if is_question or script.scopes.name(node.func) == "builtins.len":
            for argument in (*node.args, *node.keywords) if is_question else ():
                yield from _taken(script, argument)
            return
    if isinstance(node, ast.Name):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _taken(script, child)


def _is_known(script: Script, name: ast.Name, keys: set[str], depth: int) -> bool:
    if name.id in keys or name.id in ("self", *ABOUT) or script.scopes.name(name) is not None:
        return True
    scope = script.scopes.lookup(name.id, script.scopes.scope_of[name])
    values = scope.values.get(name.id, []) if scope else []
    if isinstance(name.ctx, ast.Store):
        return True  # the name of a comprehension's or a lambda's own
    return (
        bool(values)
        and depth > 0
        and all(value and _follows(script, value, keys, depth - 1) for value in values)
    )
