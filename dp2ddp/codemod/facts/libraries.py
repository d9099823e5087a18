"""Imports of libraries that are rank 0's as a whole: trackers of experiments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.effects import TRACKING
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import Script


@dataclass(frozen=True, eq=False)
class TrackerImport:
    """An import of a tracker: `import wandb as w`, `from clearml import Task, Logger`."""

    statement: ast.Import | ast.ImportFrom
    names: tuple[str, ...]  # what it binds
    before: (
        ast.stmt | None
    )  # the first statement behind the imports that a file begins with, for one of these
    may_be_missing: bool  # `try: import wandb`, where nothing else binds the name


def tracker_imports(
    script: Script, modules: Modules, last_import: ast.stmt | None
) -> Iterator[TrackerImport]:
    """A project's own package may be called like a tracker: `from trains.factory import Trainer`."""
    body = script.tree.body
    behind = 0 if last_import is None else body.index(last_import) + 1
    for node in script.nodes(ast.Import, ast.ImportFrom):
        assert isinstance(node, (ast.Import, ast.ImportFrom))
        names = tuple(dict.fromkeys(_bound(node, modules)))
        if not names or node.lineno in script.helper_lines or _is_for_types(script, node):
            continue
        outer = [node, *script.scopes.ancestors(node)][-2]
        at_head = outer in body[:behind]
        tried = any(isinstance(ancestor, ast.Try) for ancestor in script.scopes.ancestors(node))
        yield TrackerImport(
            node,
            names,
            body[behind] if at_head and behind < len(body) else None,
            at_head and tried and not all(_is_bound_otherwise(script, name) for name in names),
        )


def _bound(node: ast.Import | ast.ImportFrom, modules: Modules) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        if not node.level and _is_tracker(node.module or "", modules):
            yield from (alias.asname or alias.name for alias in node.names if alias.name != "*")
        return
    for alias in node.names:
        if _is_tracker(alias.name, modules):
            yield alias.asname or alias.name.partition(".")[0]


def _is_tracker(module: str, modules: Modules) -> bool:
    return module.partition(".")[0] in TRACKING and not modules.is_local(module)


def _is_for_types(script: Script, node: ast.AST) -> bool:
    """`if TYPE_CHECKING:` runs nowhere."""
    tests = (ancestor.test for ancestor in script.scopes.ancestors(node) if isinstance(ancestor, ast.If))
    return any(script.text_of(test).endswith("TYPE_CHECKING") for test in tests)


def _is_bound_otherwise(script: Script, name: str) -> bool:
    """`except ImportError: wandb = None`."""
    return bool(script.scopes.top.values.get(name) or script.scopes.top.definitions.get(name))
