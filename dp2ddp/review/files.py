"""Which files there are, and which of them are worth reading: before anything is parsed or anything heavy imported."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from dp2ddp.errors import SourceError
from dp2ddp.source.survey import LEFT_OUT

SUFFIXES = (".py", ".ipynb")
# A file without any of these wraps nothing and was not converted; what speaks to other ranks has both of SPEAKS.
MENTIONS = b"DataParallel data_parallel parallel_apply DistributedSampler ddp_helpers dp2ddp.helpers".split()
SPEAKS = (b"torch", b"distributed")
# One of each is in a file that may use a library that wraps by itself.
LIBRARIES = (b"transformers", b"trl", b"setfit", b"lightning", b"ignite", b"fastai")
USES = (b"Trainer", b"Fabric", b"Lite", b"auto_model", b"to_parallel", b"parallel_ctx", b".fit(")


def python_files(paths: Iterable[str]) -> Iterator[str]:
    """The Python files and notebooks that are named, and those below folders that are; sorted within a folder."""
    for path in paths:
        if os.path.isdir(path):
            yield from (name.removeprefix("./") for name in _below(path))
        elif os.path.exists(path):
            yield path
        else:
            raise SourceError(f"{path}: no such file or folder")


def _below(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        yield folder  # as what cannot be read; the others are looked at
        return
    for entry in ordered:
        name = entry.name
        if name.startswith(".") or name in LEFT_OUT:
            continue
        if name.endswith(SUFFIXES):
            if os.path.isfile(entry.path):  # a link may lead nowhere, or in a circle
                yield entry.path
        elif entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)


def read_bytes(path: str) -> bytes:
    """The whole file, without the buffer that costs as much as reading it."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def may_matter(path: str) -> bool:
    """Whether a file has a word in it that any rule needs; one that cannot be read is reported later."""
    try:
        data = read_bytes(path)
    except OSError:
        return True
    matters = any(word in data for word in MENTIONS) or all(word in data for word in SPEAKS)
    return matters or _uses_wrapping_library(path, data)


def acts(path: str) -> bool:
    """Whether a file does something when it is run: it may be where a training starts."""
    from dp2ddp.source.neighbours import does_something  # asked of few

    return path.endswith(".ipynb") or does_something(read_bytes(path))


def _uses_wrapping_library(path: str, data: bytes) -> bool:
    """Whether it imports one, and has a word of what of it wraps."""
    if not (any(name in data for name in LIBRARIES) and any(word in data for word in USES)):
        return False
    from dp2ddp.codemod.knowledge.wrapping_libraries import IMPORTS  # of use to few

    return path.endswith(".ipynb") or IMPORTS.search(data.decode(errors="replace")) is not None
