"""Files that rank 0 writes."""

import os
import sys
import time
import weakref
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch.distributed as dist

from .broadcast import Rank
from .rank0 import ask_rank0, run_on_rank0
from .ranks import own_rank, together
from .trackers import make_on_rank0

FLUSHED: Dict[str, int] = {}  # by path, how often rank 0 is to have flushed a file that nobody closed
WRITES = ("write", "writelines")
READS = ("read", "readline", "readlines", "seek", "tell", "truncate")


def flush_file(file: Any, path: str) -> None:
    """Flush a file that stays open, or that the script has left: a rank that reads it next waits until rank 0 has."""
    if file.closed:
        return
    try:
        file.flush()
    finally:
        is_rank = path and Rank.process == os.getpid()  # workers have rank 0's connection to the store
        if is_rank and own_rank() == 0:
            dist.distributed_c10d._get_default_store().add(path, 1)
        elif is_rank:
            if not FLUSHED:
                sys.addaudithook(wait_for_rank0)
            FLUSHED[path] = FLUSHED.get(path, 0) + 1


def wait_for_rank0(event: str, given: Tuple[Any, ...]) -> None:
    """An audit hook of ranks > 0, before a file is read."""
    is_read = event == "open" and given[1] is not None and not writes(given[1])
    if is_read and together() and not isinstance(given[0], int):
        path = os.path.abspath(os.fsdecode(given[0]))
        while path in FLUSHED and dist.distributed_c10d._get_default_store().add(path, 0) < FLUSHED[path]:
            time.sleep(0.001)


class FileOnRank0:
    """An open file that rank 0 writes. The others write to the null device; what they read of it is rank 0's.

    Rank 0 alone meets a full disk. In a with block it goes on, as the others do; all raise the error at its end.
    """

    def __init__(self, opener: Any, path: Any, mode: str, /, *args: Any, **options: Any) -> None:
        files: List[Any] = []
        run_on_rank0(lambda: files.append(opener(path, mode, *args, **options)))
        self.file = files[0] if files else opener(os.devnull, mode.replace("x", "w"), *args, **options)
        self.name, self.is_in_block = path, False
        self.error: Optional[OSError] = None
        is_of_all = together() and not isinstance(path, int)
        self.of_all = os.fsdecode(os.path.abspath(path)) if is_of_all else ""
        # torch may keep alive what a script forgot
        weakref.finalize(self, flush_file, self.file, self.of_all)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(vars(self)["file"], name)
        if name in READS:
            return partial(ask_rank0, attribute)
        return partial(self.try_to, attribute) if name in WRITES else attribute

    def flush(self) -> None:
        self.try_to(flush_file, self.file, self.of_all)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.readlines())

    def try_to(self, method: Callable[..., Any], *args: Any) -> Any:
        try:
            return method(*args)
        except OSError as error:
            if not self.is_in_block:
                raise
            print(f"{error}: all ranks raise this when they have written {self.name}", file=sys.stderr)
            self.error = self.error or error

    def __enter__(self) -> "FileOnRank0":
        self.is_in_block = True
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """All ranks go on when rank 0's file is complete."""
        if self.file.closed:
            return
        is_failing = sys.exc_info()[0] is not None  # the other ranks may not come here
        self.is_in_block = True
        self.try_to(self.file.close)
        if not is_failing:
            ask_rank0(self.raise_error)

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error


class MadeFile:
    """An archive, a sound: rank 0 has it. All ranks go on when it is complete, and may read it."""

    def __init__(self, made: Any) -> None:
        vars(self)["made"] = made

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["made"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.made, name, value)

    def __enter__(self) -> Any:
        return self.made.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.end(error[0], self.made.__exit__, *error)

    def close(self) -> None:
        self.end(sys.exc_info()[0], self.made.close)

    def end(self, error: Any, method: Callable[..., Any], *args: Any) -> None:
        if error is None:
            run_on_rank0(method, *args)
        else:  # the other ranks may not come here
            method(*args)


def open_on_rank0(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
    """The built-in open: what is written goes to rank 0's file alone."""
    if writes(mode):
        return FileOnRank0(open, file, mode, *args, **options)
    return open(file, mode, *args, **options)


def writes(mode: str) -> bool:
    return bool(set(mode) & set("wax+"))


def open_by_on_rank0(
    opener: Callable[..., Any], /, path: Any = None, mode: str = "r", *args: Any, **options: Any
) -> Any:
    """The same for gzip.open and its like; what another library opens to write, rank 0 has."""
    if path is None:
        path = next((options.pop(name) for name in ("filename", "file", "name") if name in options), None)
    if not writes(mode):
        return opener(path, mode, *args, **options)
    is_like_open = opener is open or getattr(opener, "__module__", "") in ("gzip", "bz2", "lzma", "codecs")
    if is_like_open:
        return FileOnRank0(opener, path, mode, *args, **options)
    return MadeFile(make_on_rank0(opener, path, mode, *args, **options))


def open_path_on_rank0(method: Callable[..., Any], /, mode: str = "r", *args: Any, **options: Any) -> Any:
    """path.open(mode); what is no path opens its own on every rank."""
    owner = getattr(method, "__self__", None)
    if isinstance(owner, os.PathLike):
        return open_on_rank0(owner, mode, *args, **options)
    return method(mode, *args, **options)


def write_on_rank0(method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call what writes a file, by its name. Where it is given no path, or an open file, each rank calls it."""
    given = (*args, *kwargs.values())
    is_of_path = isinstance(getattr(method, "__self__", None), os.PathLike)
    has_path = is_of_path or any(isinstance(each, (str, os.PathLike)) for each in given)
    if not has_path or any(hasattr(each, "write") for each in given):
        return method(*args, **kwargs)
    return ask_rank0(method, *args, **kwargs) if together() or own_rank() == 0 else None
