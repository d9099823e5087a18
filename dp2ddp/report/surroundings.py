"""Where and how it was verified: what a reader needs to do it again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import dp2ddp
from dp2ddp.masks import masked
from dp2ddp.report.result_document import Block, Fact, Facts

_PACKAGES = ("torch", "numpy")


def surroundings(
    command: Sequence[str], seed: int, files: Sequence[tuple[str, bytes]]
) -> tuple[tuple[str, str], ...]:
    """(label, words); `files` are the original and the port, by name."""
    return tuple(_all(command, seed, files))


def conversion_surroundings(
    command: Sequence[str], files: Sequence[tuple[str, bytes]]
) -> tuple[tuple[str, str], ...]:
    """The same of a conversion, which runs nothing; `files` are originals and results, by name."""
    return *_tool(command), *_digests(files)


def surroundings_facts(caption: str, rows: Sequence[tuple[str, str]]) -> tuple[Block, ...]:
    """As a document shows them; none where there are none."""
    facts = tuple(Fact(label, words) for label, words in rows)
    return (Facts(caption, facts),) if facts else ()


def _tool(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    name = Path(command[0]).name
    yield "command", shlex.join(["dp2ddp" if name == "__main__.py" else name, *masked(command[1:])])
    yield "finished", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    yield "dp2ddp", dp2ddp.__version__
    yield "python", f"{platform.python_version()} ({platform.python_implementation()})"


def _digests(files: Sequence[tuple[str, bytes]]) -> Iterator[tuple[str, str]]:
    yield from ((f"sha256 of {name}", hashlib.sha256(data).hexdigest()) for name, data in files)


def _all(command: Sequence[str], seed: int, files: Sequence[tuple[str, bytes]]) -> Iterator[tuple[str, str]]:
    yield from _tool(command)
    yield from ((name, _version(name)) for name in _PACKAGES)
    yield (
        "system",
        f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} processors",
    )
    yield "devices", "virtual: each is the CPU, with a random stream of its own"
    yield "seed", f"{seed} for random, numpy and torch, where the script sets none"
    yield from _digests(files)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
