"""Where and how it was verified: what a reader needs to do it again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import dp2ddp
from dp2ddp.masks import masked
from dp2ddp.report.result_document import Block, Fact, Facts

_PACKAGES = ("torch", "numpy")


def surroundings_facts(caption: str, rows: Mapping[str, str]) -> tuple[Block, ...]:
    """As a document shows them; none where there are none."""
    facts = tuple(Fact(label, words) for label, words in rows.items())
    return (Facts(caption, facts),) if facts else ()


def surroundings(
    command: Sequence[str], files: Sequence[tuple[str, bytes]], seed: int | None = None
) -> Iterator[tuple[str, str]]:
    """(label, words); `files` by name, before and after; `seed`: of runs, where something has run."""
    name, machine = Path(command[0]).name, f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "command", shlex.join(["dp2ddp" if name == "__main__.py" else name, *masked(command[1:])])
    yield "finished", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    yield "dp2ddp", dp2ddp.__version__
    yield "python", f"{platform.python_version()} ({platform.python_implementation()})"
    if seed is not None:
        yield from ((name, _version(name)) for name in _PACKAGES)
        yield "system", f"{machine}, {os.cpu_count()} processors"
        yield "devices", "virtual: each is the CPU, with a random stream of its own"
        yield "seed", f"{seed} for random, numpy and torch, where the script sets none"
    yield from ((f"sha256 of {name}", hashlib.sha256(data).hexdigest()) for name, data in files)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
