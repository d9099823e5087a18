"""What a run writes: it keeps from writing through symbolic links that lead out of its copies of the user's folders.

Python tells of every file that it opens, makes, renames or removes (audit events); before one that writes, links on
the way are opened up (copies/unfolding.py). torch.save and files mapped by torch open files in C++ and tell nobody, so
they are watched as well. Which files a process wrote is left in the run folder, read without torch: rankN.writes, a
line of JSON each, of a path's first time: the fields of a Write.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from dp2ddp.copies.disguise import disguise, is_stand_in
from dp2ddp.copies.unfolding import Unfolding
from dp2ddp.runtime.hang.stacks import users_place
from dp2ddp.taps import Inside, Taps

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
_NAMES = {  # audit event -> which of its arguments are paths that it makes, moves or removes
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
_CONTENT = ("os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr")
_PATHS = (str, bytes, os.PathLike)
_NO_FILE = ("", ":memory:")  # sqlite's databases in memory


class LinkGuard:
    """What all the watched functions ask."""

    def __init__(self, unfolding: Unfolding, writes: Writes | None) -> None:
        self._unfolding = unfolding
        self._writes = writes
        self._opening = Inside()  # what is done to open a link up is no work of the script's

    def is_busy(self) -> bool:
        """Whether this thread opens a link up."""
        return self._opening.yes

    def writes(self, path: Any, through: bool, empty: bool = False) -> None:
        """Something is about to be written at `path`; Any: what a script gives for one, a number is an open file."""
        if isinstance(path, _PATHS) and not self.is_busy():
            with self._opening.entered():
                self._unfolding.own(os.fsdecode(path), through, empty)

    def opens(self, path: Any, anew: bool) -> None:
        """A file is about to be opened for writing; `anew`: what is in it goes away."""
        self.writes(path, through=True, empty=anew)
        if self._writes:
            self._writes.note(path, anew=anew)

    def enters(self, path: Any) -> None:
        """A folder is about to be where paths begin: it is to be one of the run's own."""
        if isinstance(path, _PATHS) and os.path.isdir(path) and self._unfolding.copies(path):
            self.writes(path, through=True)

    def opens_folder(self, path: Any) -> None:
        """A folder is about to be moved or removed with all that is in it: one of ours is to be one."""
        if is_stand_in(path) and os.path.isdir(path):
            self.writes(path, through=True)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """For sys.addaudithook."""
        if event == "open":
            path, mode, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self.opens(path, anew=bool(flags & os.O_TRUNC))
            elif mode is None:  # os.open; what is written later may be named from this folder
                self.enters(path)
        elif event == "os.chdir":
            self.enters(arguments[0])
        elif event in _NAMES:
            for index in _NAMES[event]:
                self.writes(arguments[index], through=False)
            if event == "os.rename":
                self.opens_folder(arguments[0])
        elif event == "shutil.rmtree":
            self.opens_folder(arguments[0])
        elif event in _CONTENT:
            self.writes(arguments[0], through=True)
        elif event == "sqlite3.connect":
            for path in _database(arguments[0]):
                self.writes(path, through=True)


def guard(owned: Sequence[Path], lock: Path, writes: Writes | None = None, kept: Sequence[Path] = ()) -> None:
    """From now on, for the rest of this process and the children it forks; `writes` is told what they write.

    owned: folders that the run may write to. lock: a file that all ranks share. kept: the user's folders, which the
    run has copies of.
    """
    guarding = LinkGuard(Unfolding(owned, lock, kept), writes)
    disguise(guarding.is_busy)
    sys.addaudithook(guarding.hook)
    _watch_torch(guarding)


def rename_across_layers() -> None:
    """In a layer (copies/mounted.py) the kernel renames no folder of the user's, as between two disks: copy it."""
    for name in ("rename", "replace"):
        Taps().around(name, _moving, os)


def _moving(rename: Callable[..., None], src: Any, dst: Any, **options: Any) -> None:
    try:
        rename(src, dst, **options)
    except OSError as error:
        if error.errno != errno.EXDEV or not os.path.isdir(src) or options:
            raise
        if os.path.isdir(dst):
            os.rmdir(dst)  # an empty one is replaced, another is an error
        shutil.copytree(src, dst, symlinks=True)
        shutil.rmtree(src)


def _database(name: Any) -> Iterator[str]:
    """The file that sqlite3.connect opens, unless it only reads it."""
    if not isinstance(name, _PATHS) or os.fsdecode(name) in _NO_FILE:
        return
    path = os.fsdecode(name)
    if not path.startswith("file:"):
        yield path
        return
    from urllib.parse import unquote, urlsplit

    url = urlsplit(path)
    if not re.search(r"\b(mode=(ro|memory)|immutable=1)\b", url.query):
        yield unquote(url.path)


def _watch_torch(guarding: LinkGuard) -> None:
    """torch.save's file, and files that tensors are mapped to and shared with."""
    import torch
    from torch import serialization

    def saves(file: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        guarding.opens(name, anew=True)

    def maps(filename: Any, shared: Any = False, *args: Any, **kwargs: Any) -> None:
        if shared:
            guarding.opens(filename, anew=False)

    taps = Taps()
    taps.before("__init__", saves, serialization._open_zipfile_writer_file)
    for owner in (torch, torch.UntypedStorage, torch.TypedStorage):
        taps.before("from_file", maps, owner)


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
        if isinstance(path, _PATHS):
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
