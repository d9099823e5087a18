"""Nets under a conversion: ranks are told where they would write what rank 0 writes, or walk in another order."""

import os
import re
import sys
import tempfile
import traceback
from typing import Any, Tuple

import torch

from .ranks import own_rank, together

LIBRARY = re.compile(r".*(site-packages|dist-packages|lib/python3\.\d+/)|<frozen")
HIDDEN = re.compile(r"(.*/)?(\.\w|__pycache__)")


def refuse_own_files() -> None:
    """Rank 0 alone writes files. What a library would write on other ranks too is refused, with the script's line.

    Caches, temporary files and devices are left alone.
    """
    if own_rank() == 0:
        return
    save, spared = torch.save, (tempfile.gettempdir(), sys.prefix, "/dev/", "/proc/", "/sys/")

    def refuse(event: str, given: Tuple[Any, ...]) -> None:
        if event != "open" or not together() or not given[2] & (os.O_WRONLY | os.O_RDWR):
            return
        path = os.path.abspath(os.fsdecode(given[0])) if not isinstance(given[0], int) else os.devnull
        name, lines = os.path.relpath(path), traceback.extract_stack(sys._getframe(1))
        own = [
            each for each in lines if not LIBRARY.match(each.filename) and each.name != tell_and_save.__name__
        ]
        is_spared = HIDDEN.match(name) or name.startswith("..") and path.startswith(spared)
        if own and not is_spared:
            place = f"line {own[-1].lineno} of {os.path.basename(own[-1].filename)}"
            raise PermissionError(f"{place} writes {path} on every rank: call it by run_on_rank0")

    def tell_and_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, (str, os.PathLike)):
            sys.audit("open", f, "wb", os.O_WRONLY)  # torch opens it where no hook looks
        save(obj, f, *args, **kwargs)

    sys.addaudithook(refuse)
    torch.save = tell_and_save
