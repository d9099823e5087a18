"""Rooms of the codemod, from the ground up: a room imports from those below it, so there is no circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CODEMOD = Path(__file__).resolve().parent.parent.parent / "dp2ddp" / "codemod"
HOME = "dp2ddp.codemod."
# `reasons`, `edits`, `rule` and `launch` are files: words that all above speak, and the line that starts a conversion.
ORDER = ("reasons", "knowledge", "model", "edits", "writing", "rule", "looks", "launch", "plans", "rules")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.removeprefix(HOME) for name in names if name.startswith(HOME))


def files() -> Iterator[tuple[str, Path]]:
    for room in ORDER:
        folder = CODEMOD / room
        yield from ((room, path) for path in sorted(folder.glob("*.py")))
        if not folder.is_dir():
            yield room, folder.with_suffix(".py")


def test_a_file_imports_from_rooms_below_its_own() -> None:
    for room, path in files():
        below = {*ORDER[: ORDER.index(room) + 1]}
        assert {name.partition(".")[0] for name in imported(path)} <= below, path
