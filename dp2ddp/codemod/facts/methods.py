"""Which method a call means: through classes, their bases, and whatever overrides it in the project."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Script

Method = ast.FunctionDef | ast.AsyncFunctionDef


def method_called(script: Script, call: ast.Call) -> Method | None:
    """Of `self.fit(x)`, `super().fit(x)`, `trainer.fit(x)` with `trainer = Trainer()`; None if it may be several."""
    if not isinstance(call.func, ast.Attribute):
        return None
    receiver, name = call.func.value, call.func.attr
    owner = script.scopes.owner_class(call)
    if isinstance(receiver, ast.Call) and script.scopes.name(receiver.func) == "builtins.super":
        return next((one for base in bases(script, owner) if (one := method_of(script, base, name))), None)
    if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls") and owner:
        return _one_of(script, owner, name)
    made = script.scopes.value(receiver)
    owner = class_called(script, made) if isinstance(made, ast.Call) else None
    return method_of(script, owner, name) if owner else None


def class_called(script: Script, call: ast.Call) -> ast.ClassDef | None:
    found = script.scopes.definition(call.func)
    return found if isinstance(found, ast.ClassDef) else None


def method_of(
    script: Script, owner: ast.ClassDef, name: str, asked: frozenset[ast.AST] = frozenset()
) -> Method | None:
    """A method of a class, its own or that of a base."""
    for one in owner.body:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == name:
            return one
    for base in bases(script, owner):
        if base not in asked and (found := method_of(script, base, name, asked | {owner})):
            return found
    return None


def bases(script: Script, owner: ast.ClassDef | None) -> Iterator[ast.ClassDef]:
    """The bases of a class that are classes of the project."""
    for base in owner.bases if owner else ():
        found = script.scopes.definition(base)
        if isinstance(found, ast.ClassDef):
            yield found


def _one_of(script: Script, owner: ast.ClassDef, name: str) -> Method | None:
    """The one method that `self.name` can mean: that of the class or, where others are made from it, of theirs."""
    classes, pending = {owner}, [owner]
    while pending:
        heirs = [one for one in script.heirs.get(pending.pop(), ()) if one not in classes]
        classes.update(heirs)
        pending += heirs
    found = {method_of(script, one, name) for one in classes} - {None}
    real = [one for one in found if one and not _is_abstract(one)]
    return real[0] if len(real) == 1 else None


def _is_abstract(method: Method) -> bool:
    """A docstring, `pass`, `raise NotImplementedError`: what others fill in."""
    return all(isinstance(one, (ast.Pass, ast.Raise)) or _is_constant(one) for one in method.body)


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
