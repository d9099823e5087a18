"""What a run left behind: in its copy of a folder, and in what that only links to."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path


@dataclass(frozen=True)
class FilesLeft:
    """Files that a run wrote and removed, folders that it made or removed; paths are relative to `folder`."""

    folder: Path
    written: tuple[str, ...]
    removed: tuple[str, ...]
    folders: frozenset[str]
    root: str = ""  # where we find what the run has at "/"

    def leads(self, path: str) -> str:
        """Where a link leads that the run made, as it stands in it; empty for what is none."""
        place = self.folder / path
        return os.readlink(place) if place.is_symlink() else ""

    def place(self, path: str) -> Path:
        """Where a file is that the run wrote; a link that it made is followed in the run's own tree."""
        place = self.folder / path
        for _ in range(40):  # as many as the kernel follows
            if not place.is_symlink():
                break
            place = Path(self.root + os.path.join(str(place.parent)[len(self.root) :], os.readlink(place)))
        return place


def is_as_it_was(new: Path, old: Path) -> bool:
    """Whether a file was opened for writing, and nothing came of it."""
    return old.is_file() and new.is_file() and filecmp.cmp(old, new, shallow=False)


# ---- whether what a copy only links to is as it was: the last word where no mount keeps writers away

LOOKED_INTO = 500  # first things in a linked folder that are asked, too


@dataclass(frozen=True)
class Original:
    """A file or folder of the user's, and how it looked; None: it was not there, or could not be read."""

    path: Path
    state: tuple[int, ...] | None
    inside: tuple[Original, ...] = ()  # of a folder: the first things in it


def look_at(path: Path) -> Original:
    """How a thing that is linked looks now."""
    inside: list[str] = []
    with suppress(OSError), os.scandir(path) as entries:
        inside = [entry.path for entry in islice(entries, LOOKED_INTO)]
    return Original(path, _state(path), tuple(Original(Path(name), _state(Path(name))) for name in inside))


def changed(originals: Iterable[Original]) -> tuple[Path, ...]:
    """Those that look different by now."""
    every = (each for original in originals for each in (*original.inside, original))
    return tuple(each.path for each in every if _state(each.path) != each.state)


def _state(path: Path) -> tuple[int, ...] | None:
    """The time is that of the last change of anything, which nobody can set back."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_ctime_ns, state.st_mode, state.st_ino
