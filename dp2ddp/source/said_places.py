"""What a file says of other places: folders that it adds to sys.path, modules by name.

Paths are put together as the file does it, and nothing of it is run.
"""

from __future__ import annotations

import ast
import operator
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dp2ddp.source.parsing import nodes_in

OF_SITE = "site.addsitedir"
LONGEST = 4096  # characters of a path
PURE = ("dirname", "basename", "join", "split", "normpath", "expanduser")  # of os.path
OF_TEXT = {"join", "rsplit", "split", "rpartition", "partition", "rstrip", "replace", "format"}
OF_PATHS = {
    "parent",
    "parents",
    "joinpath",
    "resolve",
    "absolute",
    "as_posix",
    "__str__",
    "with_name",
    "name",
}
WIDE = re.compile(r"%[^s%]|{[^}]*:")  # formats that may ask for a billion blanks


def _filled(text: str, given: object) -> str | None:
    return None if WIDE.search(text) else text % (tuple(given) if isinstance(given, list) else given)


OPERATORS: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Div: operator.truediv,
    ast.Mod: _filled,
}


def added_roots(tree: ast.Module, nodes: Sequence[ast.AST], file: Path, entry: Path) -> list[Path]:
    """The folders that a file adds to sys.path, as far as they are built from its own place and from text.

    `sys.path.append("core")` means a folder of the one that the script is started in: the current folder or, where that
    has none, the script's own.
    """
    if not any(_is_sys_path(node) or _is_of_site(node) for node in nodes):
        return []
    start = file.parent if file.suffix == ".ipynb" else Path.cwd()  # where it runs
    folders = []
    for value in _added(tree, nodes, _Paths(file, start)):
        folder = start / value  # which is `value` alone where it begins at the root
        if not os.path.isdir(folder) and folder.is_relative_to(start):
            folder = entry.parent / folder.relative_to(start)
        # Path.is_dir raises where we may not look
        if os.path.isdir(folder) and folder.resolve() not in folders:
            folders.append(folder.resolve())
    return folders


def _added(tree: ast.Module, nodes: Sequence[ast.AST], paths: _Paths) -> Iterator[str | Path]:
    """What is added to sys.path, line by line; twice, since a function may use what is assigned below it."""
    adders = {"sys.path.insert", "sys.path.append", "sys.path.extend", OF_SITE, *_own_adders(tree)}
    kinds = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.Call)
    lines = sorted((node for node in nodes if isinstance(node, kinds)), key=lambda node: node.lineno)
    for node in lines + lines:
        match node:
            case ast.Call(func=function, args=[*_, last]) if dotted(function) in adders:
                yield from paths.listed(last)
            case ast.AugAssign(target=target, value=value) | ast.Assign(targets=[target], value=value) if (
                _is_sys_path(target)
            ):
                yield from paths.listed(value)
            case ast.Assign(targets=targets, value=value):
                paths.names |= {each.id: paths.value(value) for each in targets if isinstance(each, ast.Name)}
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.For(target=ast.Name(id=name), iter=value)
            ):
                paths.names[name] = paths.value(value)


def _is_sys_path(node: ast.AST) -> bool:
    """Whether it is `sys.path`, or a part of it: of `sys.path[:0] = ...`."""
    path = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(path, ast.Attribute) and path.attr == "path" and dotted(path) == "sys.path"


def _is_of_site(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and dotted(node) == OF_SITE


def _own_adders(tree: ast.Module) -> Iterator[str]:
    """Functions of the file's own that add to sys.path: `add_path(x)`."""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return (each.name for each in functions if any(map(_is_sys_path, nodes_in(each))))


def dotted(node: ast.expr) -> str:
    """`a.b.c` as text; of `f(x).c` only what stands behind the call."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


def leading_text(node: ast.expr) -> str:
    """The constant text that an expression begins with; a point: the name of the package that it stands in."""
    match node:
        case ast.Name(id="__name__" | "__package__"):
            return "."
        case ast.Constant(value=str(text)):
            return text
        case (
            ast.BinOp(left=first)
            | ast.FormattedValue(value=ast.Name() as first)
            | ast.JoinedStr(values=[first, *_])
        ):
            return leading_text(first)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return text.partition("{")[0]
    return ""


class _Paths:
    """What expressions of text, os.path and pathlib are worth; None where that cannot be told."""

    def __init__(self, file: Path, start: Path) -> None:
        """Paths of a file, which starts in a folder."""
        self.names: dict[str, object] = {"__file__": str(file)}
        self.known: dict[str, object] = {
            **{name: getattr(os.path, name) for name in PURE},
            **dict.fromkeys(("abspath", "realpath"), lambda path: os.path.normpath(start / path)),
            **{name: getattr(os, name) for name in ("pardir", "curdir", "sep")},
            **dict.fromkeys(("str", "fspath"), str),
            "Path": start.joinpath,
            "getcwd": lambda: str(start),
            "cwd": lambda: start,
            "path": [],  # sys.path, without what it holds
        }

    def listed(self, node: ast.expr) -> list[str | Path]:
        """The paths that an expression is, or is a list of."""
        value = self.value(node)
        parts = value if isinstance(value, list) else [value]
        return [part for part in parts if isinstance(part, (str, Path))]

    def value(self, node: ast.expr) -> object:
        """What an expression is worth."""
        try:
            value = self._worth(node)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError, RuntimeError):
            return None
        return value if not isinstance(value, (str, list)) or len(value) < LONGEST else None

    def _worth(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.names[name] if name in self.names else self.known.get(name)
            case ast.FormattedValue(value=inner):
                return self.listed(inner)[0]
            case ast.JoinedStr(values=parts):
                return "".join(str(self._worth(part)) for part in parts)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(part) for part in parts]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](self.value(left), self.value(right))
            case ast.Subscript(value=owner, slice=index):
                return operator.getitem(self.value(owner), self.value(index))  # type: ignore[call-overload]
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self.value(owner), name)
            case ast.Call(func=function, args=arguments):
                called = self.value(function)
                return called(*map(self.value, arguments)) if callable(called) else None
        return None

    def _attribute(self, owner: object, name: str) -> object:
        """A part of a path or a text, or what a module has under a name; no method that could touch a file."""
        if name == "format" and WIDE.search(str(owner)):
            return None
        if isinstance(owner, (str, Path)):
            return getattr(owner, name) if name in (OF_TEXT if isinstance(owner, str) else OF_PATHS) else None
        return self.known.get(name)
