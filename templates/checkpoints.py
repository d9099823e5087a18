"""Checkpoints, written once, and never half."""

import os
import shutil
import stat
from contextlib import suppress
from typing import Any

import torch

from .rank0 import run_on_rank0


def save_on_rank0(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save on rank 0 alone; a run that is killed meanwhile leaves the old file."""
    run_on_rank0(save_completely, obj, f, *args, **kwargs)


def save_completely(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save into a file beside, which is then moved into place."""
    is_path = isinstance(f, (str, os.PathLike))
    if not is_path or os.path.lexists(f) and not is_one_file(os.lstat(f)):
        return torch.save(obj, f, *args, **kwargs)  # into memory, a pipe, a link, or a file of two names
    path = os.fspath(f)
    beside = os.path.splitext(path)[0] + ".unfinished"  # torch writes the name into the file, without its end
    try:
        torch.save(obj, beside, *args, **kwargs)
        if os.path.exists(path):
            shutil.copymode(path, beside)
        os.replace(beside, path)
    finally:
        with suppress(OSError):
            os.remove(beside)


def is_one_file(state: os.stat_result) -> bool:
    return stat.S_ISREG(state.st_mode) and state.st_nlink == 1
