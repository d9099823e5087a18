"""Files that rank 0 writes."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .rank0 import ask_rank0, run_on_rank0
from .ranks import together
from .trackers import make_on_rank0


class LogFile:
    """The built-in open, for a file that rank 0 writes; the other ranks write a nameless one of their own."""

    def __init__(self, path: Any, mode: str = "r", buffering: int = -1, **options: Any) -> None:
        self.writes, self.reads = bool(set(mode) & set("wax+")), "+" in mode
        files = []
        if self.writes:
            run_on_rank0(lambda: files.append(self.opened(path, mode, buffering, **options)))
        if self.writes and not files:
            mode = mode.replace("r+", "w").replace("a", "w").replace("x", "w")
            if self.opened is open:
                files.append(tempfile.TemporaryFile(mode, buffering, **options))
            else:
                files.append(self.opened(os.devnull, mode, buffering, **options))
        self.file = files[0] if files else self.opened(path, mode, buffering, **options)

    opened = staticmethod(open)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.file, name)
        if self.writes and self.reads and name in ("read", "readline", "readlines", "seek", "tell"):
            return lambda *args: ask_rank0(lambda: method(*args))
        return method

    def __iter__(self) -> Iterator[Any]:
        return iter(self.readlines() if self.writes and self.reads else self.file)

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """All ranks leave when the file is complete."""
        if not self.file.closed:
            self.file.close()
            if self.writes and together() and not sys.exc_info()[0]:
                dist.barrier()


def open_on_rank0(path: Any, mode: str = "r", buffering: int = -1, **options: Any) -> LogFile:
    """The built-in open, of a file that rank 0 writes."""
    return LogFile(path, mode, buffering, **options)


def open_by_on_rank0(
    opener: Callable[..., Any], path: Any, mode: str = "r", *args: Any, **options: Any
) -> Any:
    """gzip.open and its like: what is written goes to rank 0's file alone."""
    if not set(mode) & set("wax+"):
        return opener(path, mode, *args, **options)
    if getattr(opener, "__name__", "") == "open" and opener.__module__ in ("gzip", "bz2", "lzma", "codecs"):
        kind = type(
            "LogFile",
            (LogFile,),
            {
                "opened": staticmethod(
                    lambda path, mode, buffering, **given: opener(path, mode, *args, **given)
                )
            },
        )
        return kind(path, mode, **options)
    return make_on_rank0(opener, path, mode, *args, **options)


def open_path_on_rank0(method: Callable[..., Any], mode: str = "r", *args: Any, **options: Any) -> Any:
    """path.open(mode); something else that can be opened is opened on all ranks."""
    owner = getattr(method, "__self__", None)
    return (
        LogFile(owner, mode, *args, **options)
        if isinstance(owner, os.PathLike)
        else method(mode, *args, **options)
    )


def write_on_rank0(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a method by whose name it writes a file; where it turns out that it is given no path, it is called on all ranks."""
    owner = getattr(method, "__self__", None)
    paths = [each for each in (owner, *args, *kwargs.values()) if isinstance(each, (str, os.PathLike))]
    if isinstance(owner, torch.nn.Module) or not paths and not isinstance(owner, LogFile):
        return method(*args, **kwargs)
    return run_on_rank0(method, *args, **kwargs)
