"""What a run left behind: in its copy of a folder, and in what that only links to."""

from __future__ import annotations

import filecmp
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
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

HASHED = 2**20  # bytes of a file of which the content is asked, too
HASHED_INSIDE = 2**16  # the same for the first things in a linked folder
LOOKED_INTO = 500  # so many of them


@dataclass(frozen=True)
class Original:
    """A file or folder of the user's, and how it looked; None: it was not there, or could not be read."""

    path: Path
    state: tuple[int | str, ...] | None
    inside: tuple[Original, ...] = ()  # of a folder: the first things in it


def look_at(path: Path) -> Original:
    """How a thing that is linked looks now."""
    return Original(path, _state(path, HASHED), tuple(_inside(path)) if path.is_dir() else ())


def changed(originals: Iterable[Original]) -> tuple[Path, ...]:
    """Those that look different by now."""
    every = (
        (each, limit)
        for original in originals
        for each, limit in (*((one, HASHED_INSIDE) for one in original.inside), (original, HASHED))
    )
    return tuple(each.path for each, limit in every if _state(each.path, limit) != each.state)


def _inside(folder: Path) -> Iterator[Original]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in islice(entries, LOOKED_INTO)]
    except OSError:
        return
    yield from (Original(Path(name), _state(Path(name), HASHED_INSIDE)) for name in names)


def _state(path: Path, hashed: int) -> tuple[int | str, ...] | None:
    try:
        state = path.stat()
        small = stat.S_ISREG(state.st_mode) and state.st_size <= hashed
        content = hashlib.blake2b(path.read_bytes()).hexdigest() if small else ""
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns, state.st_mode, state.st_ino, content
