"""What methods do of objects that nobody knows: by what they are called."""

from __future__ import annotations

import re
from enum import Enum, auto


class MethodDoes(Enum):
    """What a method does, by its name."""

    WRITE = auto()  # a file, if it is given anything (its path)
    WRITE_PATH = auto()  # to the path that it is a method of
    OPEN = auto()


_WRITES = re.compile(
    r"(savefig|savetxt|imsave|save_pretrained|save_weights|save_model|save)$"
    r"|to_(csv|excel|pickle|parquet|hdf|feather|stata|json_file|netcdf)$"
    r"|(tofile|extractall|export_chrome_trace|write_image|write_html)$"
)
_OF_PATHS = {
    *("write_text", "write_bytes", "mkdir", "unlink", "rmdir", "touch", "rename", "symlink_to", "rmtree"),
}


def method(name: str) -> MethodDoes | None:
    """What a method of an object that is not known does."""
    if name in _OF_PATHS:
        return MethodDoes.WRITE_PATH
    if name == "open":
        return MethodDoes.OPEN
    return MethodDoes.WRITE if _WRITES.match(name) else None
