"""A copy of the user's folder where no mount can be made: code and small things are copied, data are links.

The run opens links up where it writes (unfolding.py). What the tool itself puts there replaces a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dp2ddp.copies.cloning import clone, make_like
from dp2ddp.copies.disguise import is_stand_in, link
from dp2ddp.copies.leavings import FilesLeft, Original, changed, is_as_it_was, look_at
from dp2ddp.source.folders import links_out
from dp2ddp.source.survey import EntryKind, FolderEntry, is_below_left_out, is_left_out, survey

LARGE_COPIED = 8 * 2**20  # bytes of a file above survey.SMALL that is copied all the same
ALL_COPIED = 256 * 2**20  # bytes of such files in all
NEIGHBOURS = 500  # things beside the folder that can be found from the copy
SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".txt", ".sh", ".env")


@dataclass(frozen=True)
class LinkedCopy:
    """A copy of a folder, what was in it at the start, and what of it are links to the user's files."""

    original: Path  # the user's
    folder: Path
    before: Mapping[str, tuple[int, int]]  # path -> size and time of the last change, of files and links
    folders: frozenset[str]
    linked: tuple[Original, ...]
    # folders of the user's that the run could write to: the original, and where links lead to
    kept: tuple[Path, ...]

    @property
    def inside(self) -> tuple[Path, ...]:
        """Where the run has it: what it writes below is caught."""
        return (self.folder,)

    def left_behind(self) -> FilesLeft:
        """What the run wrote and removed."""
        after, folders = _inventory(self.folder)
        touched = (path for path in after if after[path] != self.before.get(path))
        written = sorted(path for path in touched if not self._is_as_it_was(path))
        gone = {path for path in self.before.keys() - after.keys() if not (self.folder / path).is_dir()}
        for path in self.before.keys() - after.keys() - gone:  # opened up
            gone.update(self._missing(path))
        now = {name for name in folders if name in self.folders or not (self.original / name).is_dir()}
        return FilesLeft(self.folder, tuple(written), tuple(sorted(gone)), frozenset(now ^ self.folders))

    def _is_as_it_was(self, path: str) -> bool:
        new, old = self.folder / path, self.original / path
        if is_stand_in(new) and os.path.realpath(new) == os.path.realpath(old):
            return True  # in a folder that was opened up
        return (path in self.before or not new.is_symlink()) and is_as_it_was(new, old)

    def _missing(self, path: str) -> Iterator[str]:
        """What was removed from a folder that was opened up."""
        here = self.folder / path
        for entry in os.scandir(self.original / path):
            name = f"{path}/{entry.name}"
            if not os.path.lexists(here / entry.name):
                yield name
            elif entry.is_dir() and not (here / entry.name).is_symlink():
                yield from self._missing(name)

    def changed_originals(self) -> tuple[Path, ...]:
        """Files of the user's that only links lead to, and that are not as they were before the run."""
        return changed(self.linked)


def copy_by_links(
    original: Path, room: Path, files: Mapping[Path, bytes], named: Iterable[Path], without: Iterable[Path]
) -> LinkedCopy:
    """Copy a folder into `room`, with `files` in it in the place of the user's.

    named: files that lie in the copy as files, however much there is beside them. without: what is passed over.
    """
    making = _Making(original, _beside_its_neighbours(original, room, set(without)))
    for entry in survey(original, (*named, *files), without):
        making.put(entry)
    for path, data in files.items():
        if path.is_relative_to(original):
            making.place(path).unlink(missing_ok=True)  # a link: what it leads to is the user's
            making.place(path).write_bytes(data)
    return LinkedCopy(
        original,
        making.folder,
        *_inventory(making.folder),
        tuple(map(look_at, making.linked)),
        (original, *links_out(original).folders),
    )


class _Making:
    """From `original` to `folder`."""

    def __init__(self, original: Path, folder: Path) -> None:
        self.original, self.folder = original, folder
        self.linked: list[Path] = []
        self._copied = 0  # bytes of large files

    def place(self, path: Path) -> Path:
        """Where it is in the copy."""
        return self.folder / path.relative_to(self.original)

    def put(self, entry: FolderEntry) -> None:
        """Put a thing of the folder into the copy."""
        path, place = entry.path, self.place(entry.path)
        match entry.kind:
            case EntryKind.FOLDER:
                make_like(path, place)
            case EntryKind.CODE:
                self._copy(path, place)
            case EntryKind.SMALL:
                self._copy(path, place)
                if place.suffix in SETTINGS and not place.is_symlink():
                    _move_paths(place, str(self.original), str(self.folder))
            case EntryKind.LARGE if clone(path, place):
                pass
            case EntryKind.LARGE if entry.size <= min(LARGE_COPIED, ALL_COPIED - self._copied):
                self._copied += entry.size
                self._copy(path, place)
            case EntryKind.LARGE | EntryKind.DATA:
                self._link(path, place)
            case EntryKind.LINK:
                self._follow(path, place)

    def _copy(self, path: Path, place: Path) -> None:
        try:
            shutil.copy2(path, place)
        except OSError as error:  # the run can read no more of it than we: no rights, a broken disk
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            place.unlink(missing_ok=True)
            self._link(path, place)

    def _link(self, path: Path, place: Path) -> None:
        link(path, place)
        self.linked.append(path)

    def _follow(self, path: Path, place: Path) -> None:
        """A link within the folder leads to the same place of the copy, one out of it to where it led."""
        there = Path(os.path.realpath(path))
        if there.is_relative_to(self.original) and not is_below_left_out(there, self.original):
            there = self.place(there)
        else:
            self.linked.append(path)
        place.symlink_to(there)


def _beside_its_neighbours(original: Path, room: Path, without: set[Path]) -> Path:
    """The folder for the copy; `..` and `../..` lead to links to what is beside the original."""
    above = [parent for parent in list(original.parents)[:2] if parent != parent.parent]
    here = room.joinpath("tree", *(parent.name for parent in reversed(above)))
    here.mkdir(parents=True)
    for depth, parent in enumerate(above):
        own = original if depth == 0 else above[0]
        place = here if depth == 0 else here.parent
        with contextlib.suppress(PermissionError), os.scandir(parent) as entries:
            for entry in islice(entries, NEIGHBOURS):
                if Path(entry.path) not in {own, *without}:
                    link(entry.path, place / entry.name)
    folder = here / original.name
    make_like(original, folder)
    return folder


def _move_paths(file: Path, old: str, new: str) -> None:
    """Paths below the original in a file of settings lead into the copy."""
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return
    fresh = moved(text, old, new)
    if fresh != text:
        file.chmod(file.stat().st_mode | 0o200)
        file.write_bytes(fresh.encode("utf-8"))


def moved(text: str, old: str, new: str) -> str:
    """`text` with the folder `old` as `new`, wherever a path begins with it."""
    return re.sub(rf"(?<![\w./-]){re.escape(old)}(?![\w.-])", lambda _: new, text)


def _inventory(root: Path) -> tuple[Mapping[str, tuple[int, int]], frozenset[str]]:
    """Files and links with their sizes and times, and folders; no sockets, no pipes."""
    files: dict[str, tuple[int, int]] = {}
    folders: set[str] = set()
    for folder, names, others in os.walk(root):
        names[:] = [name for name in names if not is_left_out(os.path.join(folder, name))]
        for name in (*names, *others):
            place = os.path.join(folder, name)
            path = os.path.relpath(place, root)
            with contextlib.suppress(OSError):
                state = os.lstat(place)
                if stat.S_ISDIR(state.st_mode):
                    folders.add(path)
                elif stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode):
                    files[path] = state.st_size, state.st_mtime_ns
    return files, frozenset(folders)
