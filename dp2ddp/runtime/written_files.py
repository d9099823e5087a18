"""Which files a process of a run wrote, as it left them in the run folder. No torch here.

rankN.writes: a line of JSON each, of a path's first time: the fields of a Write.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from dp2ddp.runtime.stacks import users_place


@dataclass(frozen=True)
class Write:
    """A file that was opened for writing."""

    anew: bool  # what was in it is gone: two that do this at once tear it
    path: str
    place: str = ""  # the user's line, "train_ddp.py:42"


class Writes:
    """The list of files that a process, and those that it forks, open for writing."""

    def __init__(self, run_folder: Path, rank: int) -> None:
        self._run_folder = f"{run_folder}{os.sep}"
        self.belong_to(rank)

    def belong_to(self, rank: int) -> None:
        """From now on; a process may learn late which rank it is."""
        self._known: set[Write] = set()
        # stays open: opening it again would be one more file that is opened for writing
        self._file = os.open(
            f"{self._run_folder}rank{rank}.writes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )

    def note(self, path: Any, anew: bool) -> None:
        """Any: what a script gives for a path; a number is a file that was opened before."""
        if isinstance(path, (str, bytes, os.PathLike)):
            self._add(Write(anew, os.path.abspath(os.fsdecode(path))))

    def _add(self, write: Write) -> None:
        if write in self._known or write.path.startswith(self._run_folder):
            return
        self._known.add(write)
        with contextlib.suppress(OSError):
            line = json.dumps(astuple(replace(write, place=users_place())))
            os.write(self._file, f"{line}\n".encode())


def read_writes(run_folder: Path, rank: int) -> tuple[Write, ...]:
    """In the order in which they came."""
    path = run_folder / f"rank{rank}.writes"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return tuple(Write(*json.loads(line)) for line in lines)
