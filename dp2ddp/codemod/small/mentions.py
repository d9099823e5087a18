"""Where a file names a thing of a library, to call it, to derive from it, to ask for it, or to hand it on."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.own_mode import in_own_mode
from dp2ddp.codemod.small.rule import Change, rename

ASKING = ("builtins.isinstance", "builtins.issubclass")


def mentions(module: Module, names: Mapping[str, str]) -> Iterator[tuple[ast.expr, str]]:
    """Expressions that mean one of these names themselves (not a variable that holds it), with the name."""
    candidates: list[ast.expr] = [*module.all(ast.Name), *module.all(ast.Attribute), *module.all(ast.Call)]
    for node in candidates:
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == "getattr"):
            continue
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)) or in_own_mode(module, node):
            continue
        name = module.name(node, follow=False)
        if name is not None and name in names:
            yield node, name


def replaced(module: Module, helpers: Mapping[str, str], because: str) -> Iterator[Change]:
    """Wherever one of these is named, its helper takes its place."""
    return (rename(node, helpers[name], because) for node, name in mentions(module, helpers))


def is_type_test(module: Module, node: ast.AST) -> bool:
    """`isinstance(x, DataLoader)`, an annotation: true of what is derived from it as well."""
    child = node
    for parent in module.around(node):
        match parent:
            case ast.Call(func=func):
                return func is not child and module.name(func) in ASKING
            case ast.AnnAssign(annotation=annotation):
                return annotation is child
            case ast.arg():
                return True
            case ast.FunctionDef(returns=returns):
                return returns is child
            case ast.stmt():
                return False
        child = parent
    return False
