"""The words of a file's code: what a rule asks for, so that no comment or sentence answers it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Script

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names_of(script: Script) -> frozenset[str]:
    """What the code calls things: names, attributes, keywords, parameters, definitions, parts of imported names."""
    return frozenset((*script.by_word, *_other_names(script), *_imported_parts(script)))


def _other_names(script: Script) -> Iterator[str]:
    for node in script.nodes(ast.keyword, ast.arg, *_DEFINITIONS):
        if isinstance(node, (ast.keyword, ast.arg)):
            yield node.arg or ""  # `**options` has none
        elif isinstance(node, _DEFINITIONS):
            yield node.name


def _imported_parts(script: Script) -> Iterator[str]:
    for alias in script.nodes(ast.alias):
        if isinstance(alias, ast.alias):
            yield from alias.name.split(".")
            yield alias.asname or ""
    for node in script.nodes(ast.ImportFrom):
        yield from (getattr(node, "module", None) or "").split(".")


def terms_of(script: Script) -> frozenset[str]:
    """Texts of one word, `os.environ["LOCAL_RANK"]`, `getattr(dist, "all_reduce")`, `"--drop-last"`; no sentences."""
    return frozenset(
        node.value
        for node in script.nodes(ast.Constant)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"\S+", node.value)
        and not isinstance(script.scopes.parents[node], ast.Expr)  # a docstring
    )


def imports_of(script: Script) -> frozenset[str]:
    """The full names of all that is imported, wherever."""
    scopes = {id(scope): scope for scope in script.scopes.scope_of.values()}.values()
    return frozenset(name for scope in scopes for name in (*scope.imports.values(), *script.scopes.stars))
