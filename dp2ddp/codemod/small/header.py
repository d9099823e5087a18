"""The import of the helpers: behind the imports that a file begins with."""

from __future__ import annotations

import ast
from collections.abc import Set

from dp2ddp.codemod.header import Header
from dp2ddp.codemod.helpers import import_texts
from dp2ddp.codemod.lift import ImportLine
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.start import last_import
from dp2ddp.source.helper_module import NAME


def make_header(module: Module, helpers: Set[str]) -> Header | None:
    """`from ddp_helpers import ...`, for what is not imported there yet."""
    there = {binding.node for name in helpers for binding in module.top.bindings.get(name, ())}
    imported = {alias.name for node in there if isinstance(node, ast.ImportFrom) for alias in node.names}
    missing = sorted(helpers - imported)
    if not missing:
        return None
    lines = import_texts([ImportLine(NAME, helper) for helper in missing])
    anchor = last_import(module)
    return Header(tuple(lines), anchor)
