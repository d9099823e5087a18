"""Whether what a copy only links to is as it was before the run: the last word where no mount keeps writers away."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

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
