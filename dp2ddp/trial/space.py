"""Space for scratch copies: it is looked at before they are made, and said where a run fails of it."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dp2ddp.errors import RunError
from dp2ddp.runtime.process.run import Run
from dp2ddp.trial.memory import MB
from dp2ddp.words import size

_LEAST = 16 * MB  # for what runs write, at least; with less free a file system counts as full


def free_space(scratch: Path) -> int:
    """Bytes that may still be written where scratch copies lie."""
    return shutil.disk_usage(next(each for each in (scratch, *scratch.parents) if each.exists())).free


def check_space(scratch: Path, each: int, copies: int) -> None:
    """RunError if `copies` of `each` bytes do not fit."""
    free = free_space(scratch)
    if lacks(free, each, copies):
        what = f"{copies} scratch copies of {size(each)} each" if each >= MB else "a scratch copy"
        raise RunError(f"{tempfile.gettempdir()}: {size(free)} are free, too little for {what}; {advice()}")


def lacks(free: int, each: int, copies: int) -> bool:
    """Whether so many copies, with what runs write into them, do not fit."""
    return copies > 0 and free < copies * each + _LEAST


def lacked_space(run: Run, lowest: int) -> bool:
    """Whether a run failed where nothing could be written any more; one that fails otherwise may be right to."""
    return run.failure is not None and run.failure.kind == "crash" and lowest < _LEAST


def space_text(run: Run) -> str:
    """How a run ended that lacked space."""
    assert run.failure is not None
    return f"{tempfile.gettempdir()}, where its scratch copy lies, is full: {run.failure.text}"


def advice() -> str:
    """What helps."""
    return (
        "set TMPDIR to a folder with more space (TMPDIR=/large dp2ddp ...), or have the script write less "
        "(arguments behind --, --steps)"
    )


@contextmanager
def full_disk_is_said() -> Iterator[None]:
    """RunError in place of what Python says where a copy, or a record, could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename or tempfile.gettempdir()
        raise RunError(f"{place}: no space left for a scratch copy; {advice()}") from error
