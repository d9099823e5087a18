"""What is done with an HDF5 file that is opened: read, or written."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Call, Script

_READS = {"keys", "values", "items", "get", "visit", "visititems"}
_CHANGES = {
    "create_dataset",
    "create_group",
    "require_dataset",
    "require_group",
    "resize",
    "write_direct",
    "attrs",
}
_NEITHER = {"close", "flush", "filename", "mode"}


def reads_of(script: Script, opened: Call) -> list[ast.AST]:
    """Where the file's content is looked at."""
    return [node for node in _uses(script, opened) if _is_read(script, node)]


def writes_of(script: Script, opened: Call) -> list[ast.AST]:
    """Where the file may be changed: whatever is neither a look at it nor its end."""
    return [
        node for node in _uses(script, opened) if not _is_read(script, node) and not _is_end(script, node)
    ]


def _uses(script: Script, opened: Call) -> Iterator[ast.AST]:
    name = _name_of(script, opened)
    if name is None:
        yield opened.node
        return
    for node in script.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        same = node.id == name and script.scopes.function(node) is script.scopes.function(opened.node)
        if same and isinstance(node.ctx, ast.Load):
            yield node


def _name_of(script: Script, opened: Call) -> str | None:
    """`f` of `f = h5py.File(...)` and of `with h5py.File(...) as f`."""
    parent = script.scopes.parents[opened.node]
    target = None
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
    elif isinstance(parent, ast.withitem):
        target = parent.optional_vars
    return target.id if isinstance(target, ast.Name) else None


def _is_read(script: Script, use: ast.AST) -> bool:
    """`f["x"]`, `f["x"][:]`, `f.keys()`, `"x" in f`, `for name in f`; `f["x"][:] = v` is none."""
    parent = script.scopes.parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READS
    if isinstance(parent, (ast.Compare, ast.For, ast.comprehension)):
        return True
    while isinstance(parent, ast.Subscript) and parent.value is use and isinstance(parent.ctx, ast.Load):
        use, parent = parent, script.scopes.parents[parent]
    changed = isinstance(parent, ast.Subscript) or getattr(parent, "attr", "") in _CHANGES
    return isinstance(use, ast.Subscript) and not changed


def _is_end(script: Script, use: ast.AST) -> bool:
    parent = script.scopes.parents[use]
    return isinstance(parent, ast.Attribute) and parent.attr in _NEITHER
