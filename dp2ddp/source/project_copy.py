"""A copy of a project that runs from there: code is copied, what is large or binary is linked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.folders import as_typed, project_root
from dp2ddp.source.left_out import LEFT_OUT

COPIED = 2**20  # bytes of one file
BINARY_COPIED = 2**16  # bytes of a file that is no text
ALL_COPIED = 512 * 2**20  # bytes of all together; beyond it every file is a link
MANY = 10_000  # files of a folder without code: the folder is a link
CODE = (".py", ".pyi", ".ipynb", ".cfg", ".toml", ".yaml", ".yml", ".json", ".sh")
_FICLONE = 0x40049409  # linux/fs.h


@dataclass(frozen=True)
class Copy:
    """What was made: the script to start, and what of the copy is a link to the original."""

    script: Path
    linked: tuple[Path, ...]


def copy_project(entry: Path | None, files: Mapping[Path, bytes], target: Path, force: bool) -> Copy:
    """Copy the project that holds the entry script and the converted files.

    The copy is made beside its place and moved there when it is whole. Version control, caches and environments are
    left out. A SourceError where something is in the way.
    """
    if entry is None:
        raise SourceError("<stdin>: a script from stdin has no project; name the file")
    entry = entry.resolve()
    converted = {path.resolve(): data for path, data in files.items()}
    root = project_root(entry, list(converted))
    target = Path(os.path.realpath(target))
    _refuse_target(target, root, force)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        room_in = target if target.exists() else target.parent
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=room_in) as room:
            whole = Path(room) / target.name
            linked = _Copying(root, whole, target).run(converted)
            _move(whole, target)
    except OSError as error:
        raise SourceError(f"{error.filename or target}: cannot be written ({error.strerror})") from error
    return Copy(as_typed(target / entry.relative_to(root)), tuple(linked))


def _refuse_target(target: Path, root: Path, force: bool) -> None:
    if target.exists() and not target.is_dir():
        raise SourceError(f"{target}: is a file; name a folder for the project with -o")
    if root.is_relative_to(target):
        raise SourceError(f"{target}: holds the project itself; name another folder, or use --in-place")
    if target.exists() and any(target.iterdir()) and not force:
        raise SourceError(f"{target}: exists already; use --force to overwrite it, or -o to write elsewhere")


def _move(whole: Path, target: Path) -> None:
    """To its place at once; or file by file into a folder that is there: each is old or new."""
    if not target.exists():
        whole.rename(target)
        return
    for folder, names, files in os.walk(whole):
        place = target / Path(folder).relative_to(whole)
        place.mkdir(exist_ok=True)
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        for name in (*files, *links):
            os.replace(Path(folder) / name, place / name)


class _Copying:
    """From `root` to `whole`, which will lie at `target` in the end."""

    def __init__(self, root: Path, whole: Path, target: Path) -> None:
        self.root = root
        self.whole = whole
        self.target = target
        self.linked: list[Path] = []
        self.copied = 0
        self.places: dict[Path, Path] = {}  # files behind links out of the project, and where they are copied

    def run(self, converted: Mapping[Path, bytes]) -> list[Path]:
        outside = [path for path in converted if not path.is_relative_to(self.root)]
        self.whole.mkdir()
        for path in self._kept(self.root):
            self._put(path, path.relative_to(self.root), outside)
        for path, data in converted.items():
            place = self.whole / self._place(path)
            place.write_bytes(data)
        return self.linked

    def _place(self, path: Path) -> Path:
        if path.is_relative_to(self.root):
            return path.relative_to(self.root)
        if path not in self.places:
            raise SourceError(
                f"{path}: lies outside of the project {self.root}; use --in-place, or move it there"
            )
        return self.places[path]

    def _kept(self, folder: Path) -> Iterator[Path]:
        """Files and links; folders that are empty, or so full that they are linked as a whole."""
        for entry in sorted(folder.iterdir()):
            if self._is_left_out(entry):
                continue
            if entry.is_dir() and not entry.is_symlink():
                inside = (
                    list(self._kept(entry)) if os.access(entry, os.R_OK | os.X_OK) else [entry] * (MANY + 1)
                )
                too_many = len(inside) > MANY and not any(each.suffix in CODE for each in inside)
                yield from [entry] if too_many or not inside else inside
            elif entry.is_symlink() or entry.is_file():  # no sockets, no pipes
                yield entry

    def _is_left_out(self, path: Path) -> bool:
        mine = path == self.target or path.name.startswith(f".{self.target.name}-")
        return mine or path.name in LEFT_OUT or path.suffix == ".pyc" or (path / "pyvenv.cfg").exists()

    def _put(self, path: Path, place: Path, outside: list[Path]) -> None:
        here = self.whole / place
        here.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            self._put_link(path, place, outside)
        elif path.is_dir():
            self._put_folder(path, here)
        elif self._is_linked(path) and not clone(path, here):
            self._link(path, here)
        elif not here.exists():
            self._copy(path, here)

    def _put_folder(self, path: Path, here: Path) -> None:
        if os.access(path, os.R_OK) and not any(path.iterdir()):
            here.mkdir()
        else:
            self._link(path, here)

    def _link(self, path: Path, here: Path) -> None:
        here.symlink_to(path)
        self.linked.append(here.relative_to(self.whole))

    def _copy(self, path: Path, here: Path) -> None:
        self.copied += path.stat().st_size
        try:
            shutil.copy2(path, here)
        except PermissionError:  # whoever starts the copy can read no more of the original
            here.unlink(missing_ok=True)
            self._link(path, here)

    def _is_linked(self, path: Path) -> bool:
        size = path.stat().st_size
        if path.suffix in CODE and size <= COPIED or path.suffix == ".py":
            return False
        return size > COPIED or self.copied + size > ALL_COPIED or size > BINARY_COPIED and _is_binary(path)

    def _put_link(self, path: Path, place: Path, outside: list[Path]) -> None:
        """A link leads to the same place of the copy, or out of it to where it led."""
        here, there = self.whole / place, path.resolve()
        if not there.exists():
            here.symlink_to(os.readlink(path))
        elif there.is_relative_to(self.root) and not self._leads_to_left_out(there):
            here.symlink_to(os.path.relpath(there, path.parent.resolve()))
        elif any(link.is_relative_to(there) for link in outside) and not self.root.is_relative_to(there):
            self._put_contents(there, place, outside)
        else:
            here.symlink_to(there)

    def _leads_to_left_out(self, there: Path) -> bool:
        above = (there, *there.parents)
        return any(
            self._is_left_out(parent)
            for parent in above
            if parent.is_relative_to(self.root) and parent != self.root
        )

    def _put_contents(self, there: Path, place: Path, outside: list[Path]) -> None:
        """Behind a link out of the project lies a file that is converted: the copy gets files of its own."""
        for path in self._kept(there) if there.is_dir() else [there]:
            inner = place / path.relative_to(there)
            self.places[path.resolve()] = inner
            self._put(path, inner, outside)


def clone(source: Path, target: Path) -> bool:
    """Share the blocks until one side writes (btrfs, xfs, ...); False where the file system cannot."""
    try:
        import fcntl

        with source.open("rb") as old, target.open("wb") as new:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
    except (OSError, ImportError):
        target.unlink(missing_ok=True)
        return False
    shutil.copystat(source, target)
    return True


def _is_binary(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"\0" in file.read(8192)
    except OSError:
        return True
