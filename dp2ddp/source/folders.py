"""The folder that a project is, and what git keeps of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.survey import Kind, survey


def project_root(entry: Path, files: Sequence[Path]) -> Path:
    """The working tree of git that keeps the entry script; or else the smallest folder that holds all of these files.

    Files that only links lead to need not lie in it.
    """
    answer = _git(entry.parent, "rev-parse", "--show-toplevel")
    root = Path(answer.strip()).resolve() if answer else None
    if root and not holds_too_much(root):
        return root
    linked = set(_behind_links(entry.parent))
    inside = [path.parent for path in files if not any(path.is_relative_to(link) for link in linked)]
    common = Path(os.path.commonpath([entry.parent, *inside]))
    if common != entry.parent and holds_too_much(common):
        raise SourceError(
            f"{entry}: its local modules lie far apart, and {common} holds more than this project; use --in-place"
        )
    return common


def working_tree(folder: Path) -> Path | None:
    """The folder above that git keeps, told by its .git alone; None for home and what is above it."""
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    return None if top is None or holds_too_much(top) else top


def holds_too_much(folder: Path) -> bool:
    """Home, the root, and what is above them are no projects."""
    import tempfile  # takes as long as a tenth of what a conversion needs to start

    return any(Path(place).resolve().is_relative_to(folder) for place in (Path.home(), tempfile.gettempdir()))


def _behind_links(folder: Path) -> Iterator[Path]:
    links = (entry.path.resolve() for entry in survey(folder) if entry.kind is Kind.LINK)
    yield from (link for link in links if not folder.is_relative_to(link))


def refuse_unkept(paths: Sequence[Path]) -> None:
    """A SourceError if a file is not under git as it is: its old text would be lost."""
    for path in paths:
        real = path.resolve()
        state = _git(real.parent, "status", "--porcelain", "--ignored", "--", real.name)
        if state is None:
            raise SourceError(
                f"{path}: not under git, so its old text would be lost; use --force to change it"
            )
        if state.strip():
            raise SourceError(f"{path}: not committed to git; commit it first, or use --force to change it")


def undo_commands(paths: Sequence[Path]) -> list[str]:
    """What puts files back, new ones too: one command of git for each working tree."""
    trees: dict[str, list[Path]] = {}
    for path in paths:
        real = path.resolve()
        trees.setdefault((_git(real.parent, "rev-parse", "--show-toplevel") or "").strip(), []).append(real)
    return [_stash(tree, files) for tree, files in trees.items() if tree]


def _stash(tree: str, files: Sequence[Path]) -> str:
    inside = Path.cwd().resolve().is_relative_to(Path(tree).resolve())
    names = [os.path.relpath(file, Path.cwd() if inside else tree) for file in files]
    return shlex.join(["git", *([] if inside else ["-C", tree]), "stash", "push", "-u", "--", *names])


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where there is no git, or no working tree."""
    import subprocess  # only what is written asks git

    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def as_typed(path: Path) -> Path:
    """A path as a person would type it: relative to the current folder, if it lies in it."""
    short = Path(os.path.relpath(path))
    return path if short.parts[:1] == ("..",) else short
