"""Checkpoints, written once."""

import io
import os
from typing import Any

import torch

from .rank0 import run_on_rank0


def save_on_rank0(thing: Any, file: Any, *args: Any, **kwargs: Any) -> None:
    """torch.save on rank 0 alone. A file is written beside its place and moved there: it is never half a checkpoint."""

    def save() -> None:
        if not isinstance(file, (str, os.PathLike)):
            return torch.save(thing, file, *args, **kwargs)  # an open file
        beside = f"{os.fspath(file)}.part"
        try:
            torch.save(thing, beside, *args, **kwargs)
            os.replace(beside, file)
        finally:
            if os.path.exists(beside):
                os.remove(beside)

    if isinstance(file, io.BytesIO):
        torch.save(thing, file, *args, **kwargs)
    else:
        run_on_rank0(save)
