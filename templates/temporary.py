"""Temporary files and folders that all ranks share: rank 0 makes them, and removes them when all are done."""

import atexit
import os
import tempfile
from typing import Any

from .process import exchange, own_rank
from .rank_zero_output import WrittenOnRankZero, object_on_rank_zero, on_rank_zero


class TemporaryDirectoryOnRankZero:
    """tempfile.TemporaryDirectory, one for all ranks. What is never cleaned up stays until rank 0 ends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.folder = object_on_rank_zero(tempfile.TemporaryDirectory, *args, **kwargs)
        self.name: str = self.folder.name
        atexit.register(self.folder.cleanup)

    def cleanup(self) -> None:
        on_rank_zero(self.folder.cleanup)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, kind: "type[BaseException] | None", *rest: object) -> None:
        if kind is None:
            self.cleanup()
        else:
            self.folder.cleanup()  # the other ranks may not come here


class NamedTemporaryFileOnRankZero(WrittenOnRankZero):
    """tempfile.NamedTemporaryFile: each rank writes to a file of its own, and the name is that of rank 0's.

    So what is written through the object can be read back through it, and what is saved or read by its name, which rank
    0 does or all do, is one file. It is there until all ranks have closed it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if own_rank() > 0:
            kwargs["delete"] = True
        super().__init__(tempfile.NamedTemporaryFile(*args, **kwargs))  # noqa: SIM115
        self.name: str = exchange(self.file.name)[0]
        atexit.register(self.file.close)

    def flush(self) -> None:
        """What rank 0 wrote stands under the name when this is over."""
        self.finish(self.file.flush)

    def close(self) -> None:
        if not self.file.closed:
            exchange(None)
        super().close()


def mkstemp_on_rank_zero(*args: Any, **kwargs: Any) -> tuple[int, str]:
    """tempfile.mkstemp: one name for all ranks; behind it the others have the null device."""
    handle, path = on_rank_zero(tempfile.mkstemp, *args, **kwargs)
    return handle if own_rank() == 0 else os.open(os.devnull, os.O_RDWR), path
