"""What is in a file that a run left behind."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from pathlib import Path
from typing import IO, Any, cast


def opened(path: Path) -> IO[bytes]:
    """A file, to be read; a compressed one by what is in it, since its head says when it was written."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return cast("IO[bytes]", openers.get(path.suffix, open)(path, "rb"))


def content_hash(path: Path) -> str:
    """SHA-256 of what is in a file; of a compressed one, of what is in it when it is unpacked."""
    try:
        with opened(path) as file:
            return digest(file.read())
    except (OSError, EOFError, lzma.LZMAError):  # only its name says that it is compressed
        return digest(path.read_bytes())


def digest(data: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
