"""Checkpoints, written once, and never half."""

import os
import stat
from typing import Any

import torch

from .rank0 import run_on_rank0


def save_on_rank0(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save on rank 0 alone; a run that is killed meanwhile leaves the old file."""
    run_on_rank0(save_completely, obj, f, *args, **kwargs)


def save_completely(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save into a file beside, which then takes the place of the old one, but not of a link or a pipe."""
    is_path = isinstance(f, (str, os.PathLike))
    old = os.lstat(f) if is_path and os.path.lexists(f) else None
    if not is_path or old and not (stat.S_ISREG(old.st_mode) and old.st_nlink == 1):
        torch.save(obj, f, *args, **kwargs)
        return
    beside = os.path.splitext(f)[0] + ".unfinished"  # torch writes the name into the file, without its end
    torch.save(obj, beside, *args, **kwargs)
    if old:
        os.chmod(beside, stat.S_IMODE(old.st_mode))
    os.replace(beside, f)
