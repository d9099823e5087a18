"""The folder that a project is, and what leads out of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.git import working_tree
from dp2ddp.source.survey import EntryKind, survey


def project_root(entry: Path, files: Sequence[Path]) -> Path:
    """The working tree of git that keeps the entry script; or else the smallest folder that holds all of these files.

    Files that only links lead to need not lie in it.
    """
    root = kept_root(entry.parent)
    if root:
        return root
    links = (each.path for each in survey(entry.parent) if each.kind is EntryKind.LINK)
    ends = {Path(os.path.realpath(link)) for link in links}  # stands a link that leads to itself
    linked = [end for end in ends if not entry.parent.is_relative_to(end)]
    inside = [path.parent for path in files if not any(path.is_relative_to(end) for end in linked)]
    common = Path(os.path.commonpath([entry.parent, *inside]))
    if common != entry.parent and holds_too_much(common):
        raise SourceError(
            f"{entry}: its local modules lie far apart, and {common} holds more than this project; use --in-place"
        )
    return common


def kept_root(folder: Path) -> Path | None:
    """The working tree of git that a folder lies in, unless it holds more than a project."""
    root = working_tree(folder)
    return None if root is None or holds_too_much(root) else root


def holds_too_much(folder: Path) -> bool:
    """Home, the root, and what is above them are no projects."""
    import tempfile  # takes as long as a tenth of what a conversion needs to start

    return any(Path(place).resolve().is_relative_to(folder) for place in (Path.home(), tempfile.gettempdir()))


def refuse_links_out(paths: Iterable[Path], root: Path) -> None:
    """A SourceError for a file that lies outside of a folder though its name does not say so: a link leads there."""
    for path in paths:
        if leads_out(path, root):
            raise SourceError(
                f"{path}: a link leads to {path.resolve()}, outside of {root}, and others may use it; it is not "
                "changed: use -o FOLDER for a converted copy of the project, or name that file itself"
            )


def leads_out(path: Path, root: Path) -> bool:
    """Whether a file lies outside of a folder, where a link on the way to it leads."""
    real = path.resolve()
    return real != Path(os.path.abspath(path)) and not real.is_relative_to(root.resolve())


MOST_ELSEWHERE = 50  # folders elsewhere that are taken care of
_OF_THE_SYSTEM = {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"}


@dataclass(frozen=True)
class LinksOut:
    """Folders, none of them in another one; and links to files: link -> file."""

    folders: tuple[Path, ...]
    files: dict[Path, Path]


def links_out(folder: Path) -> LinksOut:
    """Where links lead out of a folder, and out of the folders that they lead to.

    The system's folders, and those that hold home or all that is temporary, stay as they are.
    """
    folders: list[Path] = []
    files: dict[Path, Path] = {}
    waiting = [folder]
    while waiting and len(folders) < MOST_ELSEWHERE:
        for entry in survey(waiting.pop()):
            if entry.kind is not EntryKind.LINK:
                continue
            end = Path(os.path.realpath(entry.path))
            is_of_system = len(end.parts) < 2 or end.parts[1] in _OF_THE_SYSTEM
            if (
                is_of_system
                or any(end.is_relative_to(known) for known in (folder, *folders))
                or holds_too_much(end)
            ):
                continue
            if end.is_dir():
                folders = [*(known for known in folders if not known.is_relative_to(end)), end]
                waiting.append(end)
            elif end.is_file():
                files[entry.path] = end
    return LinksOut(tuple(folders[:MOST_ELSEWHERE]), files)
