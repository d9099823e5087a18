"""What is done with a handle on a file that is opened (an HDF5 file, a database, a memory map): read, or written."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import CallSite, Script

STORES = (  # one process can have them open for writing, and they can be read at the same time
    *("h5py.File", "tables.open_file", "netCDF4.Dataset", "pandas.HDFStore"),
    *("zarr.open", "zarr.open_group", "zarr.open_array", "zarr.group", "zarr.create"),
)
_READS = {"keys", "values", "items", "get", "visit", "visititems", "select", "walk_nodes", "variables"}
_CHANGES = {
    *(
        "create_dataset",
        "create_group",
        "require_dataset",
        "require_group",
        "resize",
        "write_direct",
        "attrs",
    ),
    *("createDimension", "createVariable", "createGroup", "create_array", "create_table", "create_earray"),
    *("put", "append", "remove"),
}
_NEITHER = {"close", "flush", "filename", "mode", "sync"}
_WRITES = {  # methods that hand nothing back, or what only goes on writing
    *(
        "execute",
        "executemany",
        "executescript",
        "commit",
        "rollback",
        "close",
        "flush",
        "sync",
        "update",
        "clear",
    ),
    *("put", "delete", "drop", "set_mapsize", "row_factory"),
}
_GOES_ON = {"cursor", "begin"}  # what comes of it is a handle, too


def is_only_written(script: Script, opened: CallSite) -> bool:
    """Whether nothing that comes from a handle is looked at: then ranks > 0 need none."""
    pending, seen = [opened.node], set[ast.AST]()
    while pending:
        made = pending.pop()
        if made in seen:
            continue
        seen.add(made)
        name = _name_of(script, made)
        for use in _uses_of(script, made, name) if name else (made,):
            parent = script.scopes.parents[use]
            if _is_store(parent, use) or isinstance(parent, (ast.withitem, ast.Delete)):
                continue
            call = script.scopes.parents[parent]
            if (
                not isinstance(parent, ast.Attribute)
                or not isinstance(call, ast.Call)
                or call.func is not parent
            ):
                return False
            if parent.attr in _GOES_ON:
                pending.append(call)
            elif parent.attr not in _WRITES or not isinstance(script.scopes.parents[call], ast.Expr):
                return False
    return True


def is_only_closed(script: Script, made: ast.Call) -> bool:
    """Whether nothing is done with the descriptor of `handle, path = mkstemp()` but `os.close(handle)`."""
    parent = script.scopes.parents[made]
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    handle = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    if not isinstance(handle, ast.Name):
        return isinstance(parent, ast.Subscript) and ast.unparse(parent.slice) == "1"  # mkstemp()[1]
    around = [script.scopes.parents[use] for use in _uses_of(script, made, handle.id)]
    return all(
        isinstance(parent, ast.Call) and script.scopes.name(parent.func) == "os.close" for parent in around
    )


def _is_store(parent: ast.AST, use: ast.AST) -> bool:
    """`map[i] = x`, `shelf[key] = x`; `map[i] += x` looks at it."""
    return (
        isinstance(parent, ast.Subscript)
        and parent.value is use
        and isinstance(parent.ctx, (ast.Store, ast.Del))
    )


def reads_of(script: Script, opened: CallSite) -> list[ast.AST]:
    """Where the file's content is looked at."""
    return [node for node in _uses(script, opened) if _is_read(script, node)]


def writes_of(script: Script, opened: CallSite) -> list[ast.AST]:
    """Where the file may be changed: whatever is neither a look at it nor its end."""
    return [
        node for node in _uses(script, opened) if not _is_read(script, node) and not _is_end(script, node)
    ]


def _uses(script: Script, opened: CallSite) -> Iterator[ast.AST]:
    name = _name_of(script, opened.node)
    if name is None:
        yield opened.node
    else:
        yield from _uses_of(script, opened.node, name)


def _uses_of(script: Script, made: ast.AST, name: str) -> Iterator[ast.AST]:
    """Where a handle is mentioned: `f` in the function that makes it, `self.f` anywhere."""
    if name.startswith("."):
        for node in script.nodes(ast.Attribute):
            if isinstance(node, ast.Attribute) and node.attr == name[1:] and isinstance(node.ctx, ast.Load):
                yield node
        return
    function = script.scopes.function(made)
    for node in script.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        scope = script.scopes.lookup(node.id, script.scopes.scope_of[node])
        inside = script.scopes.function(node) is function or scope is not None and scope.node is function
        at_top = function is None and scope is script.scopes.top
        if node.id == name and isinstance(node.ctx, ast.Load) and (inside or at_top):
            yield node


def _name_of(script: Script, made: ast.AST) -> str | None:
    """`f` of `f = h5py.File(...)` and of `with h5py.File(...) as f`; `.f` of `self.f = h5py.File(...)`."""
    parent = script.scopes.parents[made]
    target = None
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
    elif isinstance(parent, ast.withitem):
        target = parent.optional_vars
    if isinstance(target, ast.Attribute):
        return f".{target.attr}"
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


def is_only_called(script: Script, made: CallSite) -> bool:
    """Whether an object's methods are called, for nothing: `writer.add_scalar(...)`; and that is all."""
    parent = script.scopes.parents[made.node]
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0]
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return False
    variable = script.variable(target)
    reads = (
        read
        for read in script.by_word.get(variable[1].rpartition(".")[2], ())
        if isinstance(read.ctx, ast.Load)
    )
    return all(script.variable(read) == variable and _is_called_for_nothing(script, read) for read in reads)


def _is_called_for_nothing(script: Script, node: ast.expr) -> bool:
    method = script.scopes.parents[node]
    if isinstance(method, ast.Compare) and isinstance(method.ops[0], (ast.Is, ast.IsNot)):
        return True  # `if writer is not None:`
    call = script.scopes.parents[method]
    is_call = isinstance(method, ast.Attribute) and isinstance(call, ast.Call) and call.func is method
    return is_call and isinstance(script.scopes.parents[call], ast.Expr)
