"""Copies of folders for tests, of either kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dp2ddp.copies import mounted
from dp2ddp.copies.scratch import Copies, copy_folders

KINDS = ("mounts", "links")


def choose(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are made by mounts or by links from now on."""
    monkeypatch.setenv(mounted.SWITCH, "1" if kind == "mounts" else "0")
    mounted.can_mount.cache_clear()


@contextmanager
def copied(
    folder: Path, room: Path, files: Mapping[Path, bytes] | None = None, *named: Path
) -> Iterator[Copies]:
    """A copy of a folder in a new folder `room`."""
    copies = copy_folders([folder], files or {}, room, room, named)
    try:
        yield copies
    finally:
        copies.close()
