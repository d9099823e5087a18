"""Checkpoints, written once, and never half."""

import os
import shutil
import stat
from typing import Any

import torch

from .rank0 import run_on_rank0


def save_on_rank0(thing: Any, file: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save on rank 0 alone; a run that is killed meanwhile leaves the old file."""
    is_path = isinstance(file, (str, os.PathLike))
    run_on_rank0(save_completely if is_path else torch.save, thing, file, *args, **kwargs)


def save_completely(thing: Any, path: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save into a folder beside the file, then moved into place under its name, which torch writes into it.

    A link, a file of another owner and a full disk get torch.save alone.
    """
    place, name = os.path.split(os.fspath(path))
    folder = os.path.join(place, f".{name}.unfinished")
    try:
        if may_be_replaced(path):
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder, 0o700)
            torch.save(thing, os.path.join(folder, name), *args, **kwargs)
            if os.path.exists(path):
                shutil.copymode(path, os.path.join(folder, name))
            os.replace(os.path.join(folder, name), path)
            return
    except (OSError, RuntimeError):  # the latter is torch's way to say that the disk is full
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    torch.save(thing, path, *args, **kwargs)


def may_be_replaced(path: Any) -> bool:
    """Whether a file may be moved here: there is none, or a plain one of the same owner and of one name."""
    if not os.path.lexists(path):
        return True
    old = os.lstat(path)
    return (
        stat.S_ISREG(old.st_mode)
        and old.st_nlink == 1
        and getattr(os, "geteuid", lambda: old.st_uid)() == old.st_uid
    )
