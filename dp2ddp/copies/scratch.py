"""The copies of the user's folders that one run gets, by a mount or by links; nothing of the user's is ever written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.copies.linked import LinkedCopy, copy_by_links, moved
from dp2ddp.copies.mounted import Holder, MountedCopy, can_mount, mount
from dp2ddp.errors import RunError
from dp2ddp.source.folders import kept_root

Workspace = MountedCopy | LinkedCopy  # a copy of a folder: both answer the same questions


@dataclass(frozen=True)
class Copies:
    """All that one run gets; the working folder's first."""

    workspaces: tuple[Workspace, ...]
    holder: Holder | None  # of mounts

    def place(self, path: Path) -> Path:
        """Where the run has a file of the user's."""
        if self.holder:
            return path
        home = next(each for each in self.workspaces if path.is_relative_to(each.original))
        return home.folder / path.relative_to(home.original)

    def here(self, argument: str) -> str:
        """An argument of the script, with each path below an original as the same path of its copy."""
        for original, copy in self.moved:
            argument = moved(argument, original, copy)
        return argument

    @property
    def moved(self) -> tuple[tuple[str, str], ...]:
        """Folders that are elsewhere for the run: original, copy."""
        if self.holder:
            return ()
        return tuple((str(each.original), str(each.folder)) for each in self.workspaces)

    @property
    def kept(self) -> tuple[Path, ...]:
        """Folders of the user's in which the kernel is to refuse what a run writes: those that no layer covers."""
        linked = (each for each in self.workspaces if isinstance(each, LinkedCopy))
        return tuple(folder for each in linked for folder in each.kept)

    def close(self) -> None:
        """After this, the scratch folder can be removed."""
        if self.holder:
            self.holder.close()


def copy_folders(
    folders: Sequence[Path],
    files: Mapping[Path, bytes],
    room: Path,
    scratch: Path,
    named: Iterable[Path] = (),
) -> Copies:
    """Copies of folders, with `files` in them in the place of what the user has there, by the user's paths.

    room: a new folder below `scratch` for what the run writes. named: local modules, which are found anywhere.
    Raises RunError if a file lies in none of the folders, or one is the root of all.
    """
    room.mkdir(parents=True)
    shown: dict[Path, Path] = {}  # tree -> the first of the folders in it, which its files are named from
    for folder in folders:
        shown.setdefault(kept_root(folder) or folder, folder)
    trees = [tree for tree in shown if not any(other in tree.parents for other in shown)]  # the outermost
    if any(tree == tree.parent for tree in trees):
        raise RunError(
            "/: a run gets a scratch copy of the script's folder and of the one that it is started in, and this one "
            "holds everything; start dp2ddp in the project's folder, and put the script into one"
        )
    _refuse_outside(files, trees)
    if can_mount(tuple(trees), scratch / "trial mount"):
        mounted, holder = mount({shown[tree]: tree for tree in trees}, files, room)
        return Copies(tuple(mounted), holder)
    linked = [
        copy_by_links(tree, room / f"folder{number}", files, named, (scratch, *scratch.parents))
        for number, tree in enumerate(trees)
    ]
    return Copies(tuple(linked), None)


def _refuse_outside(files: Iterable[Path], folders: Sequence[Path]) -> None:
    for path in files:
        if not any(path.is_relative_to(folder) for folder in folders):
            raise RunError(
                f"{path}: belongs to the conversion, but lies outside of the working folder and of the script's; "
                "start `dp2ddp verify` in a folder that holds both"
            )
