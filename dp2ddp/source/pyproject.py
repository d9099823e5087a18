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
    """The nearest pyproject.toml with a table [tool.dp2ddp], from a folder upwards, and that table."""
    for path in map(Path, _files_upwards(str(start))):
        if not _names_us(str(path)):
            continue
        if is_of_another_user(str(path)):
            return ToolTable(unread=path)
        table = _parsed(path).get("tool", {}).get("dp2ddp")
        if isinstance(table, dict):
            return ToolTable(path, table)
    return ToolTable()


def _files_upwards(folder: str) -> Iterator[str]:
    """From a folder upwards, to the top of its git repository, to the user's home, or to the root.

    A file of another user is the last one, and not to be read: whoever may write into a folder above (/tmp) would
    decide what our commands do.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    start = Path(os.path.realpath(folder))
    for place in map(str, (start, *start.parents)):
        path = os.path.join(place, FILE)
        if os.path.isfile(path):
            yield path
            if is_of_another_user(path):
                return
        if place == home or os.path.lexists(os.path.join(place, ".git")):
            return


def is_of_another_user(path: str) -> bool:
    """Root is none: it may change our own code, too, and files of images (COPY in a Dockerfile) are root's."""
    return os.stat(path).st_uid not in (0, os.geteuid())


def _names_us(path: str) -> bool:
    """Whether a file may have a table for us; one that cannot be read may."""
    try:
        with open(path, "rb") as file:
            return b"dp2ddp" in file.read()
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
