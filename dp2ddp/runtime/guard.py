"""Keeps a run in a scratch folder from writing through its symbolic links to the user's files.

Large files and folders behind links are not copied for a run. Python tells of every file it opens, makes, renames or
removes (audit events); before one that writes, each link on the way is replaced: a folder by a folder of links to its
entries, a file by a copy. torch.save writes in C++ and tells nobody, so its file class is watched too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dp2ddp.runtime.written_files import Writes

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
_PATHS = {  # audit event -> which of its arguments are paths that it changes
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
_CONTENT = {"os.truncate": (0,), "os.chmod": (0,), "os.utime": (0,)}


def guard(scratch: Path, writes: Writes | None = None) -> None:
    """From now on, for the rest of this process and the children it forks; `writes` is told what they write."""
    root = scratch.resolve()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        for path, through in _written(event, arguments):
            _own(root, path, through)
            if writes and event == "open":
                writes.note(path, anew=bool(arguments[2] & os.O_TRUNC))

    sys.addaudithook(hook)
    _watch_torch_files(root, writes)


def _written(event: str, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, bool]]:
    """(path, whether its content changes and not only its name)"""
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITING:
            yield path, True
    for index in _PATHS.get(event, ()):
        yield arguments[index], False
    for index in _CONTENT.get(event, ()):
        yield arguments[index], True


def _own(root: Path, path: Any, through: bool) -> None:
    """Replace the links below `root` on the way to `path`, and at its end if content is changed through it."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return  # a file descriptor: its file was opened before
    place = Path(os.path.abspath(os.fsdecode(path)))
    if not place.is_relative_to(root):
        return
    for parent in reversed(place.relative_to(root).parents[:-1]):
        if (root / parent).is_symlink():
            _unfold(root / parent)
    if through and place.is_symlink() and place.is_file():
        _copy(place)


def _unfold(link: Path) -> None:
    """A link to a folder becomes a folder of links."""
    target = link.resolve()
    link.unlink()
    link.mkdir()
    for entry in target.iterdir():
        (link / entry.name).symlink_to(entry)


def _copy(link: Path) -> None:
    """A link to a file becomes a copy of it."""
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    shutil.copy2(link, fresh)
    os.replace(fresh, link)


def _watch_torch_files(root: Path, writes: Writes | None) -> None:
    from torch import serialization

    files: Any = serialization._open_zipfile_writer_file
    original = files.__init__

    def __init__(self: Any, name: Any, *args: Any, **kwargs: Any) -> None:
        _own(root, name, True)
        if writes:
            writes.note(name, anew=True)
        original(self, name, *args, **kwargs)

    files.__init__ = __init__
