"""Which files a process of a run opened for writing, as it left them on the desk. No torch here.

rankN.writes: a line of JSON each, of a path's first time: whether the file was begun anew, and its absolute path.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Write:
    """A file that was opened for writing."""

    anew: bool  # what was in it is gone: two that do this at once tear it
    path: str


class Writes:
    """Of a process and those that it forks."""

    def __init__(self, desk: Path, rank: int) -> None:
        self._desk = f"{desk}{os.sep}"
        self.belong_to(rank)

    def belong_to(self, rank: int) -> None:
        """From now on; a process may learn late which rank it is."""
        self._known: set[Write] = set()
        # stays open: opening it again would be one more file that is opened for writing
        self._file = os.open(f"{self._desk}rank{rank}.writes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, path: Any, anew: bool) -> None:
        """Any: what a script gives for a path; a number is a file that was opened before."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        write = Write(anew, os.path.abspath(os.fsdecode(path)))
        if write not in self._known and not write.path.startswith(self._desk):
            self._known.add(write)
            with contextlib.suppress(OSError):
                os.write(self._file, f"{json.dumps([write.anew, write.path])}\n".encode())


def read_writes(desk: Path, rank: int) -> frozenset[Write]:
    path = desk / f"rank{rank}.writes"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return frozenset(Write(*json.loads(line)) for line in lines)
