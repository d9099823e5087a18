"""What nobody has read: libraries that are not known, where nothing of DataParallel is found in a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.libraries import is_known_library
from dp2ddp.source.helper_module import NAME
from dp2ddp.source.parsing import parse_leniently
from dp2ddp.source.projects import Project


def unread_libraries(project: Project) -> tuple[str, ...]:
    """One line for each library that a project imports and that may do anything with its models."""
    local = {each.name.partition(".")[0] for each in project.modules} | {*project.missing}
    sources = (project.entry, *(each.source for each in project.modules))
    trees = (parse_leniently(source.text) for source in sources)
    tops = {top for tree in trees if tree for top in _imported(tree)}
    unknown = sorted(top for top in tops - local - {"", NAME} if not is_known_library(top))
    return tuple(
        f"{name}: if this library wraps models in DataParallel by itself, that was not seen"
        for name in unknown
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]
