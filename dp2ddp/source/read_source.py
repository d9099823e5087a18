"""Reads what a user names: a script, a notebook, or standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.files import SourceFile, decode_source


def read_source(path: str | Path) -> SourceFile:
    """Read a script; `-` is standard input. Whatever cannot be read is a SourceError of one line."""
    if str(path) == "-":
        return decode_source(_no_notebook(_read_stdin()), None)
    if str(path).endswith(".ipynb"):
        from dp2ddp.source.notebook.notebooks import read_notebook  # nbformat takes half a second to import

        return read_notebook(_read_bytes(Path(path)), Path(path))
    return decode_source(_read_bytes(Path(path)), Path(path))


def _read_bytes(path: Path) -> bytes:
    if os.path.isdir(path) and os.access(path, os.R_OK):
        raise SourceError(f"{path}: a folder; name the script that starts the training")
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        is_module = path.parent == Path() and Path(f"{path.name.replace('.', '/')}.py").is_file()
        meant = f" (did you mean -m {path}?)" if is_module else ""
        raise SourceError(f"{path}: no such file{meant}") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error


def _read_stdin() -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        raise SourceError("<stdin>: standard input is closed; name a file, or pipe a script in")
    try:
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:
        raise SourceError(f"<stdin>: cannot be read ({error})") from error


def _no_notebook(data: bytes) -> bytes:
    """JSON is Python, too: a notebook on stdin would be one large expression that does nothing."""
    if data.lstrip().startswith(b"{") and b'"nbformat"' in data:
        raise SourceError("<stdin>: a notebook; name its file, so that its cells and its folder are known")
    return data
