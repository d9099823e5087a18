"""What a run left behind in its copy of a folder."""

from __future__ import annotations

import filecmp
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FilesLeft:
    """Files that a run wrote and removed, folders that it made or removed; paths are relative to `folder`."""

    folder: Path
    written: tuple[str, ...]
    removed: tuple[str, ...]
    folders: frozenset[str]
    root: str = ""  # where we find what the run has at "/"

    def leads(self, path: str) -> str:
        """Where a link leads that the run made, as it stands in it; empty for what is none."""
        place = self.folder / path
        return os.readlink(place) if place.is_symlink() else ""

    def place(self, path: str) -> Path:
        """Where a file is that the run wrote; a link that it made is followed in the run's own tree."""
        place = self.folder / path
        for _ in range(40):  # as many as the kernel follows
            if not place.is_symlink():
                break
            place = Path(self.root + os.path.join(str(place.parent)[len(self.root) :], os.readlink(place)))
        return place


def is_as_it_was(new: Path, old: Path) -> bool:
    """Whether a file was opened for writing, and nothing came of it."""
    return old.is_file() and new.is_file() and filecmp.cmp(old, new, shallow=False)
