"""A notebook that runs as a script: its cells are compiled one by one, so that tracebacks name them."""

from __future__ import annotations

import ast
import importlib
import linecache
import re
from collections.abc import Iterator
from types import CodeType

# The line above each cell, as dp2ddp.source.notebooks writes it.
MARK = re.compile(r"^# %% cell (?P<number>\d+)$", re.MULTILINE)
LATER = vars(importlib.import_module("__future__"))["annotations"].compiler_flag


def compiled_cells(name: str, text: str) -> list[CodeType]:
    """The code of what stands above all cells, and of each cell."""
    tree = ast.parse(text, name)
    flags = LATER if any(_is_later(statement) for statement in tree.body) else 0
    lines = text.splitlines(keepends=True)
    codes = []
    for place, start, end in _cells(name, text):
        inside = [statement for statement in tree.body if start < statement.lineno <= end]
        for statement in inside:
            ast.increment_lineno(statement, -start)
        codes.append(compile(ast.Module(inside, []), place, "exec", flags, dont_inherit=True))
        linecache.cache[place] = (
            0,
            None,
            lines[start:end],
            place,
        )  # for tracebacks; nothing looks for such a file
    return codes


def _cells(name: str, text: str) -> Iterator[tuple[str, int, int]]:
    """What a traceback calls a part of the text, the line above it, and its last line."""
    marks = list(MARK.finditer(text))
    starts = [text.count("\n", 0, mark.start()) + 1 for mark in marks]
    names = [f"{name}, cell {mark['number']}" for mark in marks]
    ends = [*starts, text.count("\n") + 1]
    yield from zip([name, *names], [0, *starts], ends, strict=True)


def _is_later(statement: ast.stmt) -> bool:
    """`from __future__ import annotations`; the others have long been Python's way."""
    if not isinstance(statement, ast.ImportFrom) or statement.module != "__future__":
        return False
    return any(alias.name == "annotations" for alias in statement.names)
