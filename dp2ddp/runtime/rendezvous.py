"""Ranks that meet in a file (`init_method="file://..."`) meet in one of the run folder.

torch takes the file away when the last rank parts, unless two part at once: then the one makes it anew that the other
has removed. Of a run that is compared it would be a file that only one side leaves behind.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from dp2ddp.taps import Taps

_FILE = "file://"


def meet_in_run_folder(folder: Path) -> None:
    """Give init_process_group another file than the script names: the same one on all ranks."""
    import torch.distributed as dist

    if not dist.is_available():
        return

    def meet(original: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1:
            args = (args[0], in_run_folder(args[1], folder), *args[2:])
        elif "init_method" in kwargs:
            kwargs["init_method"] = in_run_folder(kwargs["init_method"], folder)
        original(*args, **kwargs)

    Taps().around("init_process_group", meet, dist.distributed_c10d, dist)


def in_run_folder(method: Any, folder: Path) -> Any:
    """The init_method with its file in this folder; any other method as it is."""
    if not isinstance(method, str) or not method.startswith(_FILE):
        return method
    path, mark, query = method.removeprefix(_FILE).partition("?")
    folder.mkdir(exist_ok=True)
    name = hashlib.sha256(path.encode()).hexdigest()[:16]
    return f"{_FILE}{folder / name}{mark}{query}"
