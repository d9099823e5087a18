"""Where a file names a thing of a library, to call it, to derive from it, to ask for it, or to hand it on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.rule import Change, rename

ASKING = ("builtins.isinstance", "builtins.issubclass")


def mentions(module: Module, names: Iterable[str]) -> Iterator[tuple[ast.expr, str]]:
    """Expressions that mean one of these names themselves (not a variable that holds it), with the name."""
    return ((node, name) for name in names for node in module.mentions.get(name, ()))


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
