"""Where links in the user's folder lead to elsewhere: data and results on a larger disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.source.folders import holds_too_much
from dp2ddp.source.survey import EntryKind, survey

MOST = 50  # folders elsewhere that are taken care of
_OF_THE_SYSTEM = {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"}


@dataclass(frozen=True)
class LinksOut:
    """Folders, none of them in another one; and links to files: link -> file."""

    folders: tuple[Path, ...]
    files: dict[Path, Path]


def links_out(folder: Path) -> LinksOut:
    """Where links lead out of a folder, and out of the folders that they lead to."""
    folders: list[Path] = []
    files: dict[Path, Path] = {}
    waiting = [folder]
    while waiting and len(folders) < MOST:
        for entry in survey(waiting.pop()):
            if entry.kind is not EntryKind.LINK:
                continue
            end = Path(os.path.realpath(entry.path))
            if any(end.is_relative_to(known) for known in (folder, *folders)) or not _may_be_theirs(end):
                continue
            if end.is_dir():
                folders = [*(known for known in folders if not known.is_relative_to(end)), end]
                waiting.append(end)
            elif end.is_file():
                files[entry.path] = end
    return LinksOut(tuple(folders[:MOST]), files)


def _may_be_theirs(path: Path) -> bool:
    """The system's folders, and those that hold home or all that is temporary, stay as they are."""
    return path.parts[1:2] != () and path.parts[1] not in _OF_THE_SYSTEM and not holds_too_much(path)
