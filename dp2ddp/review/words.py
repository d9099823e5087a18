"""The words of a file's code: what a rule asks for, so that no comment or sentence answers it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Module

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names_of(module: Module) -> frozenset[str]:
    """What the code calls things: names, attributes, keywords, parameters, definitions, parts of imported names."""
    return frozenset((*module.by_word, *_other_names(module), *_imported_parts(module)))


def _other_names(module: Module) -> Iterator[str]:
    for node in module.nodes(ast.keyword, ast.arg, *_DEFINITIONS):
        if isinstance(node, (ast.keyword, ast.arg)):
            yield node.arg or ""  # `**options` has none
        elif isinstance(node, _DEFINITIONS):
            yield node.name


def _imported_parts(module: Module) -> Iterator[str]:
    for alias in module.nodes(ast.alias):
        if isinstance(alias, ast.alias):
            yield from alias.name.split(".")
            yield alias.asname or ""
    for node in module.nodes(ast.ImportFrom):
        yield from (getattr(node, "module", None) or "").split(".")


def terms_of(module: Module) -> frozenset[str]:
    """Texts of one word, `os.environ["LOCAL_RANK"]`, `getattr(dist, "all_reduce")`, `"--drop-last"`; no sentences."""
    return frozenset(
        node.value
        for node in module.nodes(ast.Constant)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"\S+", node.value)
        and not isinstance(module.parents[node], ast.Expr)  # a docstring
    )


def imports_of(module: Module) -> frozenset[str]:
    """The full names of all that is imported, wherever."""
    scopes = {id(scope): scope for scope in module.scope_of.values()}.values()
    return frozenset((*(name for scope in scopes for name in scope.imported()), *module.stars))
