"""What was found before: of a run in which no file has changed at all, and of each file by its content."""

from __future__ import annotations

import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from dp2ddp import __version__

SOURCES = (
    *("review", "review/rules", "source"),
    *("codemod", "codemod/knowledge", "codemod/model", "codemod/rules"),
)


def default_folder() -> Path:
    """Outside of every source tree, where caches belong."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dp2ddp" / "check"


def digest(*parts: str) -> str:
    """A key of texts."""
    import hashlib  # takes longer to import than a hundred files to search

    mixed = hashlib.blake2b(digest_size=16)
    for part in parts:
        mixed.update(part.encode(errors="surrogateescape") + b"\0")
    return mixed.hexdigest()


@lru_cache(maxsize=1)
def rules_stamp() -> str:
    """What tells one state of the code that finds from another: a version, or files that somebody works on.

    Of the code as it stood when this process first asked: what is changed later is not loaded any more.
    """
    top = os.path.dirname(os.path.dirname(__file__))
    folders = [os.path.join(top, name) for name in SOURCES]
    entries = (entry for folder in folders for entry in os.scandir(folder) if entry.name.endswith(".py"))
    states = [entry.stat() for entry in entries]
    size, latest = sum(state.st_size for state in states), max(state.st_mtime_ns for state in states)
    return f"{__version__} {len(states)} {size} {latest}"


class Cache:
    """A folder with a file for each run, by its name; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def load(self, name: str) -> dict[str, Any]:
        """What was stored for a run; nothing where it is not there, not readable, or of another run."""
        if self.folder is None:
            return {}
        import json

        try:
            stored = json.loads(self._path(self.folder, name).read_bytes())
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) and stored.get("name") == name else {}

    def store(self, name: str, content: dict[str, Any]) -> None:
        """Keep something; a cache that cannot be written is none."""
        if self.folder is None:
            return
        import json

        path = self._path(self.folder, name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(json.dumps({**content, "name": name}))
            unfinished.replace(path)
        except OSError:
            return

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        number = zlib.crc32(name.encode(errors="surrogateescape"))  # two of one number take turns
        return folder / f"{number:08x}.json"
