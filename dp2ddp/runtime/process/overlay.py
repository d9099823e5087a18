"""Files that run in the words of others: a conversion on the way, without a file of ours in the user's folder.

Whoever imports such a file, or starts it, gets the other text. Its `__file__`, and the lines of tracebacks and of
stacks, are those of the file itself, so that a failure is told in the user's own lines. The cells of a notebook are
compiled one by one, so that tracebacks name them.
"""

from __future__ import annotations
import __future__

import ast
import difflib
import linecache
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from dp2ddp.taps import Taps


@dataclass(frozen=True)
class Overlay:
    """Pairs of files: the user's own, and the one that is read in its place."""

    pairs: tuple[tuple[str, str], ...] = ()

    def code(self, path: str) -> CodeType:
        """What `python PATH` runs."""
        other = dict(self.pairs).get(os.path.realpath(path))
        own = os.path.abspath(path)
        data = Path(path).read_bytes()
        if other is None:
            return compile(data, own, "exec", dont_inherit=True)
        return _compiled(own, data, Path(other).read_bytes())

    def codes(self, path: str) -> Sequence[CodeType]:
        """The same, one after the other where it is a notebook."""
        if not path.endswith(".ipynb"):
            return [self.code(path)]
        other = dict(self.pairs).get(os.path.realpath(path), path)
        return list(_cell_codes(os.path.abspath(path), Path(other).read_text(encoding="utf-8")))

    def install(self) -> None:
        """From now on, imports in this process, and in those that it forks."""
        if not self.pairs:
            return
        names = {own for own, _ in self.pairs}

        def get_code(original: Any, loader: SourceFileLoader, fullname: str) -> CodeType | None:
            file = loader.get_filename(fullname)
            return self.code(file) if os.path.realpath(file) in names else original(loader, fullname)

        Taps().around("get_code", get_code, SourceFileLoader)


def _compiled(name: str, before: bytes, after: bytes) -> CodeType:
    """The code of a text, with the lines of another."""
    tree = ast.parse(after, name)
    old, new = before.splitlines(), after.splitlines()
    origins = line_origins(old, new)
    lines = enumerate(zip(new, origins[1:], strict=True), 1)
    moved = {number for number, (line, origin) in lines if line not in old[origin - 1 : origin]}
    for node in ast.walk(tree):
        if isinstance(
            node, (ast.expr, ast.stmt, ast.excepthandler, ast.arg, ast.keyword, ast.alias, ast.pattern)
        ):
            _move(node, origins, moved)
    return compile(tree, name, "exec", dont_inherit=True)


def _move(node: ast.AST, origins: Sequence[int], moved: set[int]) -> None:
    """Put a node where it comes from; without columns where its own lines are others now."""
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]  # all of these kinds have them
    if first in moved or last in moved:
        node.col_offset = node.end_col_offset = -1  # type: ignore[attr-defined]
    node.lineno, node.end_lineno = origins[first], origins[last]  # type: ignore[attr-defined]


def line_origins(before: Sequence[bytes], after: Sequence[bytes]) -> list[int]:
    """For every line number of `after`, the one that it comes from."""
    origins = [0]
    for _, low, high, start, end in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        origins += [min(low + 1 + number, max(high, 1)) for number in range(end - start)]
    return origins


def write_overlay(folder: Path, files: Iterable[tuple[Path, bytes]]) -> tuple[tuple[str, str], ...]:
    """Keep the texts in a folder; returns the pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = []
    for number, (own, data) in enumerate(files):
        other = folder / f"{number}.py"
        other.write_bytes(data)
        pairs.append((os.path.realpath(own), str(other)))
    return tuple(pairs)


def _cell_codes(name: str, text: str) -> Iterator[CodeType]:
    """The code of what stands above all cells, and of each cell; tracebacks count the lines of a cell."""
    from dp2ddp.source.notebook.notebooks import parts_of

    flags = 0
    for number, part in parts_of(text).items():
        place = f"{name}, cell {number}" if number else name
        own = part.partition("\n")[2] if number else part  # without the mark above it
        code = compile(own, place, "exec", flags, dont_inherit=True)
        flags |= code.co_flags & __future__.annotations.compiler_flag  # as if it stood in each cell
        # for tracebacks; nothing looks for such a file
        linecache.cache[place] = (0, None, own.splitlines(keepends=True), place)
        yield code
