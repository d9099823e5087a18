"""Temporary folders that are gone when their owner is, however it ends.

The owner holds a lock on its folder. The kernel lets go of it when the process ends, also by SIGKILL; then the next one
that needs a folder removes this one. (A process id in the name would say less: a container that shares /tmp has its
own.)
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dp2ddp.signals import signals_wait

PREFIX = "dp2ddp-scratch-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder among the temporary files, its path without links; those whose owners are gone are removed first."""
    _sweep(Path(tempfile.gettempdir()))
    with ExitStack() as stack:
        with signals_wait():  # else one between the two lines would leave it behind
            folder, lock = _make()
            stack.callback(_end, folder, lock)
        yield folder


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, also what a script put behind folders closed to itself.

    What cannot be removed stays: the next `scratch_folder` tries again.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _open_up(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _open_up(folder: Path) -> None:
    for place, names, _ in os.walk(folder):
        for path in (os.path.join(place, name) for name in names):
            if not os.path.islink(path):  # behind it lies what is the user's
                os.chmod(path, 0o700)


def _make() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            if _is_mine(folder, lock):
                return folder, lock
            os.close(lock)


def _is_mine(folder: Path, lock: int) -> bool:
    """Take the lock; False where another process was quicker, and took the new folder for one that was left behind."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nobody can take one, so nobody removes it
        return True
    return os.path.samestat(os.fstat(lock), os.lstat(folder))


def _end(folder: Path, lock: int) -> None:
    with signals_wait():
        remove_folder(folder)
        os.close(lock)


def _sweep(room: Path) -> None:
    with suppress(OSError):
        for folder in room.glob(f"{PREFIX}*"):
            with suppress(OSError):  # its owner lives; or it is no folder, or another user's
                _remove_left_behind(folder)


def _remove_left_behind(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
    finally:
        os.close(lock)
