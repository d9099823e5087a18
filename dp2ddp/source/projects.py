"""The entry script and the local modules that its imports reach, as text: nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile, read_source
from dp2ddp.source.parsing import parse_leniently


@dataclass(frozen=True)
class LocalModule:
    """A module of the user's own that the entry script imports, itself or through others."""

    name: str
    source: SourceFile


@dataclass(frozen=True)
class Project:
    """What is converted together: the entry script, and the local modules it uses."""

    entry: SourceFile
    modules: tuple[LocalModule, ...] = ()


def read_project(path: str | Path) -> Project:
    """Read the script at `path`, and the local modules beside it that its imports reach."""
    entry = read_source(path)
    if entry.path is None:
        return Project(entry)
    return Project(entry, tuple(_reachable(entry)))


def _reachable(entry: SourceFile) -> Iterator[LocalModule]:
    """Every local module once, in the order in which imports reach it."""
    assert entry.path is not None
    folder = entry.path.resolve().parent
    seen = {entry.path.resolve()}
    queue = list(_imported_files(entry, folder, ()))
    while queue:
        name, file = queue.pop(0)
        if file in seen:
            continue
        seen.add(file)
        try:
            source = read_source(file)
        except SourceError:
            continue  # unreadable for us; Python itself will say so when the script runs
        yield LocalModule(name, source)
        package = tuple(name.split("."))
        package = package if file.name == "__init__.py" else package[:-1]
        queue.extend(_imported_files(source, folder, package))


def _imported_files(source: SourceFile, folder: Path, package: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    tree = parse_leniently(source.text)
    for node in ast.walk(tree) if tree else ():
        for name in _imported_names(node, package):
            file = _find(folder, name)
            if file:
                yield ".".join(name), file


def _imported_names(node: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The dotted names a statement may load: of `from a.b import c` that is a, a.b and perhaps a.b.c."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _with_parents(tuple(alias.name.split(".")))
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        base += tuple(node.module.split(".")) if node.module else ()
        yield from _with_parents(base)
        for alias in node.names:
            yield (*base, alias.name)


def _with_parents(name: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for length in range(1, len(name) + 1):
        yield name[:length]


def _find(folder: Path, name: tuple[str, ...]) -> Path | None:
    if not name or "*" in name:
        return None
    base = folder.joinpath(*name)
    for candidate in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate.resolve()
    return None
