"""In a run: links of ours look like what they lead to, as the user's folder has it there.

Otherwise os.walk and Path.rglob would not go into a linked folder of data, rmtree would refuse it, and realpath would
lead into the user's folder. A link of ours is told by how its target is spelled.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

MARK = "/."  # in front of the target: the kernel does not mind


def link(target: str | os.PathLike[str], place: str | os.PathLike[str]) -> None:
    """Make a link of ours to an absolute path."""
    os.symlink(f"{MARK}{os.fspath(target)}", place)


def is_stand_in(path: Any) -> bool:
    """Whether a path is a link of ours; Any: whatever a function of os takes."""
    try:
        target = os.readlink(path)
    except (OSError, TypeError, ValueError):
        return False
    return os.fsdecode(target).startswith(f"{MARK}/")


def disguise(is_seen_through: Callable[[], bool]) -> None:
    """From now on, in this process and those that it forks, but where the thread is one that sees through it."""
    os.lstat = _seeing(os.lstat, is_seen_through)
    os.stat = _seeing(os.stat, is_seen_through)
    os.scandir = _scanning(os.scandir)


def _seeing(look: Callable[..., os.stat_result], is_seen_through: Callable[[], bool]) -> Callable[..., Any]:
    @functools.wraps(look)
    def seeing(path: Any, **options: Any) -> os.stat_result:
        found = look(path, **options)
        if (
            stat.S_ISLNK(found.st_mode)
            and not is_seen_through()
            and not options.get("dir_fd")
            and is_stand_in(path)
        ):
            return os.stat(path)
        return found

    return seeing


class _Entry:
    """An os.DirEntry of a link of ours, which says that it is what it leads to."""

    def __init__(self, entry: os.DirEntry[Any]) -> None:
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> Any:
        return self._entry.path

    def __repr__(self) -> str:
        return repr(self._entry)

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry.is_dir()

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry.is_file()

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._entry.stat()


class _Entries:
    """What os.scandir returns."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        entry = next(self._entries)
        return _Entry(entry) if entry.is_symlink() and is_stand_in(entry.path) else entry

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()


def _scanning(scandir: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(scandir)
    def scanning(path: Any = ".") -> Any:
        entries = scandir(path)
        return entries if isinstance(path, int) else _Entries(entries)

    return scanning
