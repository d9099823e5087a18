"""What a file says of other places, as far as its text tells: folders that it adds to sys.path, modules by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from dp2ddp.source.parsing import nodes_in


def added_roots(tree: ast.Module, nodes: Sequence[ast.AST], file: Path, entry: Path) -> Iterator[Path]:
    """The folders that a file adds to sys.path, as far as they are built from its own place and from text.

    `sys.path.append("core")` means a folder of the one that the script is started in: the current folder or, where that
    has none, the script's own.
    """
    if not any(map(_is_sys_path, nodes)):
        return
    values = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    adders = {"sys.path.insert", "sys.path.append", *_own_adders(tree)}
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and dotted(node.func) in adders:
            folder = _folder_of(node.args[-1], values, file)
            if folder and not folder.is_dir() and folder.is_relative_to(_runs_in(file)):
                folder = entry.parent / folder.relative_to(_runs_in(file))
            if folder and folder.is_dir():
                yield folder.resolve()


def _own_adders(tree: ast.Module) -> Iterator[str]:
    """Functions of the file's own that add to sys.path: `add_path(x)`."""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return (each.name for each in functions if any(map(_is_sys_path, nodes_in(each))))


def _is_sys_path(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "path" and dotted(node) == "sys.path"


def dotted(node: ast.expr) -> str:
    """`a.b.c` as text; of `f(x).c` only what stands behind the call."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


def _folder_of(node: ast.expr, values: dict[str, ast.expr], file: Path, depth: int = 8) -> Path | None:
    """The folder that an expression of os.path and pathlib means; None if it cannot be told."""
    if depth == 0:
        return None

    def inner(part: ast.expr) -> Path | None:
        return _folder_of(part, values, file, depth - 1)

    match node:
        case ast.Constant(value=str(text)):
            return _runs_in(file) / text  # which is `text` alone where it begins at the root
        case ast.Name(id="__file__"):
            return file
        case ast.Name(id=name) if name in values:
            return inner(values[name])
        case ast.Attribute(value=value, attr="parent"):
            folder = inner(value)
            return folder.parent if folder else None
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(text))):
            folder = inner(left)
            return folder / text if folder else None
        case ast.Call(func=ast.Attribute(attr="resolve" | "absolute", value=value), args=[]):
            return inner(value)
        case ast.Call(func=function, args=[first, *rest]):
            return _called(dotted(function).rpartition(".")[2], inner(first), rest)
        case ast.Call(func=function) if dotted(function).endswith("getcwd"):
            return Path.cwd()
    return None


def _runs_in(file: Path) -> Path:
    """The folder in which a script starts: the current one; a notebook's own."""
    return file.parent if file.suffix == ".ipynb" else Path.cwd()


def _called(function: str, folder: Path | None, rest: list[ast.expr]) -> Path | None:
    """What a function of os.path or pathlib makes of a folder."""
    parts = [part.value for part in rest if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if folder is None or len(parts) != len(rest):
        return None
    if function == "dirname":
        return folder.parent
    if function in ("abspath", "realpath", "Path", "str", "normpath", "expanduser"):
        return folder
    return folder.joinpath(*parts) if function == "join" else None


def leading_texts(node: ast.expr) -> Iterator[str]:
    """The constant text that an expression begins with; a point: the name of the package that it stands in."""
    match node:
        case ast.Name(id="__name__" | "__package__"):
            yield "."
        case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name() as first), *_]):
            yield from leading_texts(first)
        case ast.Constant(value=str(text)):
            yield text
        case ast.BinOp(left=left):
            yield from leading_texts(left)
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            yield text
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            yield text.partition("{")[0]
