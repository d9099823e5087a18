"""Under which names a wrapped model is known: the wrap's own, parameters, attributes, aliases and results."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import Call, Script


def wrapped_names(script: Script, wraps: Iterable[Wrap]) -> frozenset[str]:
    """Names of the wrap, and of every parameter, attribute, alias and result that it is handed to."""
    names = {name for wrap in wraps for name in wrap.names}
    while more := {name for name in _handed_on(script, names) if name not in names}:
        names |= more
    return frozenset(names)


def _handed_on(script: Script, names: set[str]) -> Iterator[str]:
    yield from _through_other_objects(script, names)
    for call in script.calls:
        yield from _parameters_for(script, call.node, names)
    for node in script.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        if script.told(node.value) in names or _returns_wrapped(script, node.value, names):
            yield from (script.told(target) for target in node.targets)


def _through_other_objects(script: Script, names: set[str]) -> Iterator[str]:
    """`trainer.model(x)`, where a class keeps the wrapped model as `self.model`."""
    kept = {name.removeprefix("self.") for name in names if name.startswith("self.")}
    for call in script.calls:
        if call.method in kept:
            yield script.told(call.node.func)


def _parameters_for(script: Script, call: ast.Call, names: set[str]) -> Iterator[str]:
    """The parameters of the script's own functions that a wrapped model is passed to."""
    function = callee(script, call)
    if function is None:
        return
    arguments = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if arguments[:1] == ["self"]:
        arguments = arguments[1:]
    for parameter, given in zip(arguments, call.args):  # noqa: B905 (more arguments than parameters: *args)
        if script.told(given) in names:
            yield parameter
    for keyword in call.keywords:
        if keyword.arg and script.told(keyword.value) in names:
            yield keyword.arg


def callee(script: Script, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of the script that a call runs: by name, a class's __init__, or a method called on self."""
    found = script.scopes.definition(call.func)
    if isinstance(found, ast.ClassDef):
        return _method(found, "__init__")
    if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return found
    if isinstance(call.func, ast.Attribute) and script.told(call.func.value) == "self":
        owner = script.scopes.owner_class(call)
        return _method(owner, call.func.attr) if owner else None
    return None


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    functions = (one for one in owner.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return next((one for one in functions if one.name == name), None)


def _returns_wrapped(script: Script, value: ast.expr, names: set[str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    function = callee(script, value)
    if function is None or function.name == "__init__":
        return False
    returns = (node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value)
    return any(node.value and script.told(node.value) in names for node in returns)


def find_forwards(script: Script, names: frozenset[str]) -> Iterator[ast.Call]:
    for call in script.calls:
        if script.told(call.node.func) in names or call.method == "forward" and _owner(script, call) in names:
            yield call.node


def _owner(script: Script, call: Call) -> str:
    return script.told(call.node.func.value) if isinstance(call.node.func, ast.Attribute) else ""
