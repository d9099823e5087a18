"""`[tool.dp2ddp]` in pyproject.toml: which file of that name counts, and what stands in its table."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp2ddp.errors import SourceError

FILE = "pyproject.toml"


@dataclass(frozen=True)
class ToolTable:
    """[tool.dp2ddp] of one pyproject.toml; empty where there is none."""

    path: Path | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    unread: Path | None = None  # a file above that may have a table, and is another user's


def find_table(start: Path) -> ToolTable:
    """The nearest pyproject.toml with a table [tool.dp2ddp], from a folder upwards, and that table.

    A file of another user is the last one, and not to be read: whoever may write into a folder above (/tmp) would
    decide what our commands do.
    """
    for path in _files_upwards(Path(os.path.realpath(start))):
        if is_of_another_user(path):
            return ToolTable(unread=path if _names_us(path) else None)
        table = _parsed(path).get("tool", {}).get("dp2ddp") if _names_us(path) else None
        if isinstance(table, dict):
            return ToolTable(path, table)
    return ToolTable()


def _files_upwards(folder: Path) -> Iterator[Path]:
    """From a folder upwards, to the top of its git repository, to the user's home, or to the root."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            yield place / FILE
        if place == home or os.path.lexists(place / ".git"):
            return


def is_of_another_user(path: Path) -> bool:
    """Root is none: it may change our own code, too, and files of images (COPY in a Dockerfile) are root's."""
    return os.stat(path).st_uid not in (0, os.geteuid())


def _names_us(path: Path) -> bool:
    """Whether a file may have a table for us; one that cannot be read may."""
    try:
        return b"dp2ddp" in path.read_bytes()
    except OSError:
        return True


def says_unread(path: Path) -> str:
    """What its reader should know of a file that was not read."""
    return f"{path}: is another user's, so its [tool.dp2ddp] is not read; `chown` it, if it is yours"


def path_below(file: Path, key: str, value: object) -> Path:
    """The path that a key of the file names, from the file's folder on; SourceError for one that leads out of it."""
    if not isinstance(value, str):
        raise SourceError(f"{file}: {key} is the name of a file")
    path = file.parent / value
    if not path.resolve().is_relative_to(file.parent.resolve()):
        raise SourceError(
            f"{file}: {key} = {value!r} leads out of the folder of this file; name a file below it"
        )
    return path


def _parsed(path: Path) -> dict[str, Any]:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"  # the same module, before Python had it
    toml = importlib.import_module(name)
    try:
        table: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SourceError(f"{path}: not TOML ({error})") from error
    return table
