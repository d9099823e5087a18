"""In a run: links out of its copies are opened up before something is written through them.

A link to a folder becomes a folder of links to its entries, a link to a file a copy of it. Ranks do it one at a time,
and who reads meanwhile finds the old or the new.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from dp2ddp.copies.cloning import clone, make_like
from dp2ddp.copies.disguise import link
from dp2ddp.copies.namespace import call

_MOST_LINKS = 40  # as many as the kernel follows
_HERE, _EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


class Unfolding:
    """Keeps what is written below `roots` there; `lock` is a file that all ranks of a run share.

    kept: folders of the user's that the roots are copies of, where nothing is written by any path.
    """

    def __init__(self, roots: Sequence[Path], lock: Path, kept: Sequence[Path] = ()) -> None:
        self._roots = [os.path.realpath(root) for root in roots]
        self._kept = [os.path.realpath(folder) for folder in kept]
        self._lock = lock

    def copies(self, path: str | bytes | os.PathLike[str]) -> bool:
        """Whether a path is below one of the roots, as it is spelled."""
        return _is_in(os.path.join(os.getcwd(), os.fsdecode(path)), self._roots)

    def own(self, path: str, through: bool, empty: bool = False) -> None:
        """Open up each link out of the roots on the way to `path`; the last one only if it is written `through`.

        empty: what the file holds goes away in any case. PermissionError for a path in what is kept: a script that
        knows its folder by an absolute path.
        """
        done, rest = "/", os.path.join(os.getcwd(), path).split(os.sep)
        links = 0
        while rest:
            name = rest.pop(0)
            here = os.path.normpath(os.path.join(done, name))  # `done` has no link in it
            target = _target(here)
            if target is None or not rest and not through:
                done = here
            elif _is_in(here, self._roots) and not _is_in(
                os.path.realpath(os.path.join(done, target)), self._roots
            ):
                self._open_up(here, empty and not rest)
                done = here
            elif (links := links + 1) > _MOST_LINKS:
                return  # whoever opens it gets the error
            else:
                rest = target.split(os.sep) + rest
                done = "/" if os.path.isabs(target) else done
        if _is_in(done, self._kept) and not _is_in(done, self._roots):
            raise PermissionError(
                errno.EACCES,
                "dp2ddp keeps your folder as it is, and this is its absolute path; name it relatively",
                done,
            )

    def _open_up(self, place: str, empty: bool) -> None:
        with self._alone():
            if not os.path.islink(place):
                return  # another rank was faster
            target = Path(os.path.realpath(place))
            fresh = Path(f"{place}.{os.getpid()}.dp2ddp")
            if target.is_dir():
                _link_entries(target, fresh)
                _exchange(str(fresh), place)
            elif target.exists():
                _copy(target, fresh, empty)
                os.replace(fresh, place)
            else:
                os.unlink(place)  # what is made there is the run's

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def _is_in(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


def _target(path: str) -> str | None:
    """Where a link leads; None for what is none: asked once, since another rank may open it up at any time."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def _link_entries(target: Path, fresh: Path) -> None:
    make_like(target, fresh)
    with os.scandir(target) as entries:
        for entry in entries:
            link(entry.path, fresh / entry.name)


def _copy(target: Path, fresh: Path, empty: bool) -> None:
    if empty:
        fresh.touch()
        shutil.copymode(target, fresh)
    elif not clone(target, fresh):
        shutil.copy2(target, fresh)


def _exchange(folder: str, place: str) -> None:
    """Put a folder in the place of a link at once; where the kernel cannot, the name is gone for a moment."""
    try:
        call("renameat2", _HERE, os.fsencode(folder), _HERE, os.fsencode(place), _EXCHANGE)
        os.unlink(folder)
    except (AttributeError, OSError) as error:  # AttributeError: no Linux
        if isinstance(error, OSError) and error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        os.unlink(place)
        os.rename(folder, place)
