"""What lies in a folder as people have it: code, small things, and data of which nobody knows how much there is.

Code is found wherever it can lie. A folder of very many things without code is *data*: one entry, and nobody looks
further into it. So is what is left when `MOST` names have been read: folders are read level by level, those that are
one of very many come last, and those above a file that is named are read in any case.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from pathlib import Path

LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache",
            ".ruff_cache", ".ipynb_checkpoints", ".tox"}  # fmt: skip


def is_left_out(folder: str) -> bool:
    """Whether a folder holds version control, a cache or an environment."""
    return os.path.basename(folder) in LEFT_OUT or os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def is_below_left_out(path: Path, root: Path) -> bool:
    """Whether a path below `root` is in such a folder."""
    above = (each for each in (path, *path.parents) if each != root and each.is_relative_to(root))
    return any(is_left_out(str(each)) for each in above)


CODE = (".py", ".pyi")
SMALL = 2**16  # bytes of a file that is always copied
MANY = 500  # files of one folder without code; more are data
CROWD = 64  # folders in one folder without code; more are data
MOST = 10_000  # names that are read in all


class EntryKind(Enum):
    """What a copy does about a thing."""

    CODE = auto()
    SMALL = auto()  # a file
    LARGE = auto()  # a file
    DATA = auto()  # a folder as a whole, or a file that is one of very many
    FOLDER = auto()  # that has been looked into
    LINK = auto()


@dataclass(frozen=True)
class FolderEntry:
    """A thing in a folder; `size` in bytes, 0 where nobody asked."""

    path: Path
    kind: EntryKind
    size: int = 0


def survey(root: Path, named: Iterable[Path] = (), without: Iterable[Path] = ()) -> Iterator[FolderEntry]:
    """What lies below `root`, folders before what is in them.

    named: files whose folders are looked into, however much there is in them. without: what is passed over.
    Version control, caches and environments are left out; so are pipes and sockets.
    """
    opened = {root, *(parent for path in named for parent in path.parents)}
    passed = set(without)
    waiting = [(False, 0, 0, root)]
    number = names_read = 0
    while waiting:
        _, depth, _, folder = heapq.heappop(waiting)
        things = None
        if folder in opened or names_read < MOST:
            things = _look_into(folder, is_opened=folder in opened)
        if things is None:
            yield FolderEntry(folder, EntryKind.DATA)
            continue
        names_read += len(things)
        if folder != root:
            yield FolderEntry(folder, EntryKind.FOLDER)
        things = [thing for thing in things if Path(thing.path) not in passed]
        folders = [Path(thing.path) for thing in things if _is_folder(thing)]
        are_many = len(things) - len(folders) > MANY
        yield from (
            FolderEntry(Path(each.path), *_kind_of(each, are_many)) for each in things if _is_kept(each)
        )
        for each in folders:
            number += 1
            heapq.heappush(waiting, (len(folders) > CROWD and each not in opened, depth + 1, number, each))


def _look_into(folder: Path, is_opened: bool) -> list[os.DirEntry[str]] | None:
    """The things in a folder, links first; None: it is data, or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            kept = (entry for entry in entries if not _is_folder(entry) or not is_left_out(entry.path))
            things = list(islice(kept, MANY + CROWD + 1))
            if is_opened or not _are_data(things):
                things += kept
    except OSError:
        return None
    things.sort(key=lambda thing: (not thing.is_symlink(), thing.name))
    return things if is_opened or not _are_data(things) else None


def _are_data(things: list[os.DirEntry[str]]) -> bool:
    folders = sum(map(_is_folder, things))
    has_code = any(thing.name.endswith(CODE) and thing.is_file(follow_symlinks=False) for thing in things)
    return (len(things) - folders > MANY or folders > CROWD) and not has_code


def _is_folder(thing: os.DirEntry[str]) -> bool:
    return thing.is_dir(follow_symlinks=False)


def _is_kept(thing: os.DirEntry[str]) -> bool:
    return thing.is_symlink() or thing.is_file(follow_symlinks=False)


def _kind_of(thing: os.DirEntry[str], are_many: bool) -> tuple[EntryKind, int]:
    """The kind of a link or a file, and its size."""
    if thing.is_symlink():
        return EntryKind.LINK, 0
    if thing.name.endswith(CODE):
        return EntryKind.CODE, 0
    if are_many:
        return EntryKind.DATA, 0
    size = thing.stat(follow_symlinks=False).st_size
    return (EntryKind.SMALL if size <= SMALL else EntryKind.LARGE), size
