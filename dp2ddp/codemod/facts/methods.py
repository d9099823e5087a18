"""Which method a call means: through classes, their bases, and whatever overrides it in the project."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Script

Method = ast.FunctionDef | ast.AsyncFunctionDef


def method_called(script: Script, call: ast.Call) -> Method | None:
    """The method that `self.fit(x)`, `super().fit(x)` or `trainer.fit(x)` calls; None if it may be several."""
    if not isinstance(call.func, ast.Attribute):
        return None
    receiver, name = call.func.value, call.func.attr
    owner = script.scopes.owner_class(call)
    if isinstance(receiver, ast.Call) and script.scopes.name(receiver.func) == "builtins.super":
        return next((node for base in bases(script, owner) if (node := method_of(script, base, name))), None)
    if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls") and owner:
        return _one_of(script, owner, name)
    made = script.scopes.value(receiver)
    owner = class_called(script, made) if isinstance(made, ast.Call) else None
    return method_of(script, owner, name) if owner else None


def class_called(script: Script, call: ast.Call) -> ast.ClassDef | None:
    definition = script.scopes.definition(call.func)
    return definition if isinstance(definition, ast.ClassDef) else None


def method_of(
    script: Script, owner: ast.ClassDef, name: str, seen: frozenset[ast.AST] = frozenset()
) -> Method | None:
    """A method of a class, its own or that of a base."""
    for statement in owner.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == name:
            return statement
    for base in bases(script, owner):
        if base not in seen and (method := method_of(script, base, name, seen | {owner})):
            return method
    return None


def bases(script: Script, owner: ast.ClassDef | None) -> Iterator[ast.ClassDef]:
    """The bases of a class that are classes of the project."""
    for base in owner.bases if owner else ():
        definition = script.scopes.definition(base)
        if isinstance(definition, ast.ClassDef):
            yield definition


def _one_of(script: Script, owner: ast.ClassDef, name: str) -> Method | None:
    """The one method that `self.name` can mean: that of the class or, where others are made from it, of theirs."""
    classes, pending = {owner}, [owner]
    while pending:
        heirs = [heir for heir in script.heirs.get(pending.pop(), ()) if heir not in classes]
        classes.update(heirs)
        pending += heirs
    methods = {method_of(script, class_, name) for class_ in classes} - {None}
    real = [item for item in methods if item and not _is_abstract(item)]
    return real[0] if len(real) == 1 else None


def _is_abstract(method: Method) -> bool:
    """A docstring, `pass`, `raise NotImplementedError`: what others fill in."""
    return all(
        isinstance(statement, (ast.Pass, ast.Raise)) or _is_constant(statement) for statement in method.body
    )


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
