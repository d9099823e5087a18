"""Names that mean more than one function, class or import in the course of a script: a notebook's second attempts.

Facts that prove something ask what a name means, and get its last definition. Where there are several, that may be
another than the one that runs, so nothing is proven by it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.scopes import Scope
from dp2ddp.codemod.facts.script import Script

Meanings = dict[tuple[int, str], list[tuple[str, ast.AST]]]
BARS = "tqdm"  # whichever it is imported from, it hands on what it is given


def redefined(script: Script) -> tuple[str, ast.AST, ast.AST] | None:
    """The first name with two meanings in one scope, and where each is given to it."""
    meanings: Meanings = {}
    for name, scope, meaning, node in (*_definitions(script), *_imports(script)):
        meanings.setdefault((id(scope), name), []).append((meaning, node))
    for (_, name), given in meanings.items():
        first, *others = sorted(given, key=lambda node: node[1].lineno)  # type: ignore[attr-defined]  # statements
        other = next((node for meaning, node in others if meaning != first[0]), None)
        if other is not None:
            return name, first[1], other
    return None


def _definitions(script: Script) -> Iterator[tuple[str, Scope, str, ast.AST]]:
    """Functions and classes outside of classes, whose methods may share a name (properties and their setters)."""
    for node in script.nodes(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        scope = script.scopes.scope_of[node]
        if isinstance(scope.node, ast.ClassDef) or any(map(_is_overload, node.decorator_list)):
            continue
        if len(scope.every.get(node.name, ())) > 1:
            yield node.name, scope, ast.dump(node), node
        elif node.name in scope.imports:
            yield node.name, scope, "definition", node
        elif (
            scope is script.scopes.top
            and script.scopes.from_star(node.name)
            and _may_be_the_stars(script, node)
        ):
            yield node.name, scope, "definition", node
            yield node.name, scope, "import", next(_stars(script))


def _may_be_the_stars(
    script: Script, definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> bool:
    """Whether a star's may be meant instead: the name is used above its definition, or the star stands below."""
    stars = (star for star in _stars(script) if star.lineno > definition.lineno)
    used = (
        node
        for node in script.nodes(ast.Name)
        if isinstance(node, ast.Name) and node.id == definition.name and node.lineno < definition.lineno
    )
    return any(True for _ in (*stars, *used))


def _stars(script: Script) -> Iterator[ast.ImportFrom]:
    """Every `from module import *`."""
    for node in script.nodes(ast.ImportFrom):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield node


def _is_overload(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).rpartition(".")[2] in ("overload", "register")


def _imports(script: Script) -> Iterator[tuple[str, Scope, str, ast.AST]]:
    """Imports that no condition stands before: `try: import a as x` and `except: import b as x` are one of two."""
    for node in script.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                module = f"{script.scopes.absolute(node)}." if isinstance(node, ast.ImportFrom) else ""
                if alias.name != "*" and not f"{module}{alias.name}".startswith(BARS):
                    named = f"{module}{alias.name}" if module or alias.asname else bound
                    yield bound, script.scopes.top, named, node
