"""Scratch copies of the working folder: each run gets one of its own, and nothing of the user's is ever changed.

Small files are copied. A file above `COPIED` is cloned where the file system can (reflink), otherwise it is a symbolic
link, with a guard in the run that puts a copy in its place before it is opened for writing (runtime/guard.py).
"""

from __future__ import annotations

import bz2
import filecmp
import gzip
import hashlib
import lzma
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from dp2ddp.errors import RunError
from dp2ddp.source.left_out import LEFT_OUT
from dp2ddp.source.project_copy import clone

COPIED = 8 * 2**20  # bytes of one file
ALL_COPIED = 512 * 2**20  # bytes of all together; beyond it every file is a link
MOST_FILES = 50_000


@dataclass(frozen=True)
class Workspace:
    """A copy of a folder, and what was in it at the start: path -> (size, time of the last change)."""

    original: Path
    folder: Path
    before: dict[str, tuple[int, int]]

    def here(self, argument: str) -> str:
        """An argument of the script, with a path in the original folder as the same path in the copy.

        A path that leads out of the folder (`../data`) is named from the root: it leads nowhere from the copy.
        """
        original = str(self.original)
        if argument.startswith(".." + os.sep) and (self.original / argument).exists():
            return str((self.original / argument).resolve())
        return (
            str(self.folder) + argument[len(original) :]
            if argument.startswith(original + os.sep)
            else argument
        )

    def with_new_inventory(self) -> Workspace:
        """The same copy after something was put into it that the run did not write."""
        return replace(self, before=_inventory(self.folder))

    def left_behind(self) -> FilesLeft:
        """The files that the run made, changed and removed."""
        after = _inventory(self.folder)
        touched = (path for path in after if after[path] != self.before.get(path))
        changed = sorted(path for path in touched if not self._is_as_it_was(path))
        folders = frozenset(str(path.relative_to(self.folder)) for path in _folders(self.folder))
        return FilesLeft(
            self.folder, tuple(changed), tuple(sorted(self.before.keys() - after.keys())), folders
        )

    def _is_as_it_was(self, path: str) -> bool:
        """Whether a file was opened for writing, and nothing came of it."""
        old, new = self.original / path, self.folder / path
        return (
            path in self.before and old.is_file() and new.is_file() and filecmp.cmp(old, new, shallow=False)
        )


@dataclass(frozen=True)
class FilesLeft:
    """What a run left behind: files it wrote, files it removed, all folders."""

    folder: Path
    written: tuple[str, ...]
    removed: tuple[str, ...]
    folders: frozenset[str]


def copy_folder(original: Path, folder: Path) -> Workspace:
    """Copy `original` to `folder`, which must not be there yet; large files become links.

    Raises RunError for a folder with more than MOST_FILES files: too large to be one project's.
    """
    folder.mkdir(parents=True)
    copied = 0
    for count, source in enumerate(_files(original)):
        if count == MOST_FILES:
            raise RunError(
                f"{original}: more than {MOST_FILES} files; start `dp2ddp verify` in the script's own folder"
            )
        target = folder / source.relative_to(original)
        target.parent.mkdir(parents=True, exist_ok=True)
        size = source.lstat().st_size
        _copy(source, target, link=size > COPIED or copied + size > ALL_COPIED)
        copied += size
    for source in _folders(original):
        (folder / source.relative_to(original)).mkdir(parents=True, exist_ok=True)
    return Workspace(original, folder, _inventory(folder))


def _copy(source: Path, target: Path, link: bool) -> None:
    if source.is_symlink():
        os.symlink(source.resolve(), target)
    elif not link:
        shutil.copy2(source, target)
    elif not clone(source, target):
        os.symlink(source.absolute(), target)


def _files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not _is_left_out(Path(folder) / name))
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in [*links, *sorted(files)] if _is_kept(Path(folder) / name))


def _folders(root: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(root):
        names[:] = [name for name in names if not _is_left_out(Path(folder) / name)]
        yield from (Path(folder) / name for name in names if not (Path(folder) / name).is_symlink())


def _is_left_out(folder: Path) -> bool:
    return folder.name in LEFT_OUT or (folder / "pyvenv.cfg").exists()


def _is_kept(path: Path) -> bool:
    return path.is_symlink() or path.is_file()  # no sockets, no pipes


def _inventory(root: Path) -> dict[str, tuple[int, int]]:
    states = ((str(path.relative_to(root)), path.lstat()) for path in _files(root))
    return {path: (state.st_size, state.st_mtime_ns) for path, state in states}


def opened(path: Path) -> IO[bytes]:
    """A file, to be read; a compressed one by what is in it, since its head says when it was written."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return cast("IO[bytes]", openers.get(path.suffix, open)(path, "rb"))


def content_hash(path: Path) -> str:
    """SHA-256 of what is in a file; of a compressed one, of what is in it when it is unpacked."""
    try:
        with opened(path) as file:
            return digest(file.read())
    except (OSError, EOFError, lzma.LZMAError):  # only its name says that it is compressed
        return digest(path.read_bytes())


def digest(data: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
