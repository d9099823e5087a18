"""A converted copy of a project, which can be trained in and moved away: `convert -o FOLDER`.

Code and small files are copied. Data are links, a folder of very many files as a whole. Results of training (and
whatever the script writes to) are no links, for the copy's own runs would write through them: they are copied as long
as they are not large, and else left out. Below the target no link is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from dp2ddp.copies.cloning import clone, make_like
from dp2ddp.errors import SourceError
from dp2ddp.source.folders import project_root
from dp2ddp.source.git import as_typed
from dp2ddp.source.survey import MANY, EntryKind, FolderEntry, is_below_left_out, survey
from dp2ddp.words import size as size_text

COPIED = 2**20  # bytes of a file that is copied, whatever it is
LINKED_EACH = 20_000  # files of a folder that is not linked as a whole
RESULT_COPIED = 200 * 2**20  # bytes of a result of training that is copied
RESULTS_COPIED = 500 * 2**20  # bytes of all of them
RESULT_FILES = (".pt", ".pth", ".ckpt", ".safetensors", ".log")
RESULT_FOLDERS = {
    "checkpoint", "checkpoints", "ckpt", "ckpts", "exp", "experiments", "lightning_logs", "log", "logs", "mlruns",
    "output", "outputs", "result", "results", "run", "runs", "save", "saved", "saved_models", "tensorboard", "wandb",
    "weights",
}  # fmt: skip
RECORD = ".dp2ddp-copy.json"  # path -> hash of what convert wrote: what its owner has changed since is known


@dataclass(frozen=True)
class Copy:
    """What was made: the script to start; what of the copy is a link to the original; what is not in it.

    kept: files that their owner had changed since convert wrote them, under their new names.
    """

    script: Path
    linked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def copy_project(
    entry: Path | None, files: Mapping[Path, bytes], target: Path, force: bool, written: Iterable[str] = ()
) -> Copy:
    """Copy the project that holds the entry script and the converted `files`.

    written: paths that the script writes to, as they stand in its text.
    The copy is made beside its place and moved there when it is whole; with `force` it is laid over one that is there:
    code that changed is replaced, all else stays. A SourceError where something is in the way.
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
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as room:
            copying = _Copying(root, Path(room) / target.name, target, _places(written, root, entry))
            copying.run(converted)
            kept = tuple(_move(copying.whole, target))
    except OSError as error:
        raise SourceError(f"{error.filename or target}: cannot be written ({error.strerror})") from error
    script = as_typed(target / entry.relative_to(root))
    return Copy(script, tuple(copying.linked), tuple(copying.left_out), kept)


@dataclass(frozen=True)
class _Written:
    """What the script writes to, by the texts in it: paths, and beginnings and ends of names that it puts together."""

    paths: frozenset[Path]
    beginnings: tuple[str, ...]
    ends: tuple[str, ...]

    def may_name(self, name: str) -> bool:
        return name.startswith(self.beginnings) or name.endswith(self.ends)


def _places(written: Iterable[str], root: Path, entry: Path) -> _Written:
    """Where the texts may lead, from the script's folder or the project's."""
    texts = tuple(written)
    every = (Path(os.path.normpath(start / text)) for start in {root, entry.parent} for text in texts)
    names = {os.path.basename(text) for text in texts}
    return _Written(
        frozenset(path for path in every if root in path.parents),
        tuple(name for name in names if len(name) > 2 and name.endswith(("_", "-", "."))),
        tuple(name for name in names if len(name) > 2 and name.startswith(("_", "-", "."))),
    )


def _refuse_target(target: Path, root: Path, force: bool) -> None:
    if target.exists() and not target.is_dir():
        raise SourceError(f"{target}: is a file; name a folder for the project with -o")
    if root.is_relative_to(target):
        raise SourceError(f"{target}: holds the project itself; name another folder, or use --in-place")
    if not target.exists() or not any(target.iterdir()):
        return
    if root in target.parents and not (target / RECORD).is_file():
        raise SourceError(f"{target}: belongs to the project; name a folder that is not there yet")
    if not force:
        raise SourceError(f"{target}: exists already; use --force to overwrite it, or -o to write elsewhere")


class _Copying:
    """From `root` to `whole`, which will lie at `target` in the end."""

    def __init__(self, root: Path, whole: Path, target: Path, written: _Written) -> None:
        self.root, self.whole, self.target = root, whole, target
        self.linked: list[str] = []
        self.left_out: list[str] = []
        self._written = written
        self._outside: list[Path] = []  # converted files that lie out of the project
        self._results = 0  # bytes copied
        self._inner: dict[Path, Path] = {}  # files behind links out of the project -> where they are copied
        self._put: dict[EntryKind, Callable[[FolderEntry, Path], None]] = {
            EntryKind.FOLDER: self._folder,
            EntryKind.CODE: self._copy,
            EntryKind.SMALL: self._copy,
            EntryKind.LARGE: self._large,
            EntryKind.DATA: self._data,
            EntryKind.LINK: self._put_link,
        }

    def run(self, converted: Mapping[Path, bytes]) -> None:
        self._outside = [path for path in converted if not path.is_relative_to(self.root)]
        self.whole.mkdir()
        shutil.copymode(self.root, self.whole)
        opened = [*converted, *(path / "a new file" for path in self._written.paths)]
        for entry in survey(self.root, opened, (self.target, self.whole.parent)):
            if entry.path.suffix != ".pyc" and entry.path.name != RECORD:
                self._put[entry.kind](entry, entry.path.relative_to(self.root))
        for path, data in converted.items():
            place = self.whole / self._place(path)
            place.unlink(missing_ok=True)
            place.write_bytes(data)
        code = (path for path in self.whole.rglob("*.py") if not path.is_symlink())
        record = {str(path.relative_to(self.whole)): _hash(path) for path in code}
        (self.whole / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")

    def _place(self, path: Path) -> Path:
        if path.is_relative_to(self.root):
            return path.relative_to(self.root)
        if path not in self._inner:
            raise SourceError(
                f"{path}: lies outside of the project {self.root}; use --in-place, or move it there"
            )
        return self._inner[path]

    def _folder(self, entry: FolderEntry, place: Path) -> None:
        make_like(entry.path, self.whole / place)

    def _copy(self, entry: FolderEntry, place: Path) -> None:
        try:
            shutil.copy2(entry.path, self.whole / place)
        except PermissionError:  # whoever starts the copy can read no more of the original
            (self.whole / place).unlink(missing_ok=True)
            self._leave_out(place, "cannot be read")

    def _large(self, entry: FolderEntry, place: Path) -> None:
        size = entry.size
        if clone(entry.path, self.whole / place):
            return
        if size <= COPIED:
            self._copy(entry, place)
        elif not self._is_result(entry.path, place):
            self._link(entry.path, place, size_text(size))
        elif size <= RESULT_COPIED and self._results + size <= RESULTS_COPIED:
            self._results += size
            self._copy(entry, place)
        else:
            self._leave_out(place, size_text(size))

    def _data(self, entry: FolderEntry, place: Path) -> None:
        what = f"a folder of more than {MANY} things" if entry.path.is_dir() else ""
        if not os.access(entry.path, os.R_OK):
            what = "cannot be read"
        if self._is_result(entry.path, place):
            self._leave_out(place, what)
            if entry.path.is_dir():
                (self.whole / place).mkdir()
        elif entry.path.is_dir() and os.access(entry.path, os.R_OK) and _holds_few(entry.path):
            self._link_each(entry.path, place)
        else:
            self._link(entry.path, place, what)

    def _link_each(self, folder: Path, place: Path) -> None:
        """A folder of links to files: what is new in it is the copy's."""
        self.linked.append(_named(place, "its files"))
        for here, _, files in os.walk(folder):
            target = self.whole / place / os.path.relpath(here, folder)
            target.mkdir(exist_ok=True)
            for name in files:
                (target / name).symlink_to(Path(here) / name)

    def _is_result(self, path: Path, place: Path) -> bool:
        """Whether training makes it: what a link to it led to would be written."""
        if self.root / place in self._written.paths or self._written.may_name(path.name):
            return True
        in_results = any(
            part.lower() in RESULT_FOLDERS for part in place.parts[: None if path.is_dir() else -1]
        )
        return in_results or path.suffix in RESULT_FILES or ".tfevents." in path.name

    def _link(self, path: Path, place: Path, what: str) -> None:
        (self.whole / place).symlink_to(path)
        self.linked.append(_named(place, what))

    def _leave_out(self, place: Path, what: str) -> None:
        self.left_out.append(_named(place, what))

    def _put_link(self, entry: FolderEntry, place: Path) -> None:
        """A link leads to the same place of the copy, or out of it to where it led."""
        path, here = entry.path, self.whole / place
        there = Path(os.path.realpath(path))
        if not there.exists():
            here.symlink_to(os.readlink(path))
        elif there.is_relative_to(self.root) and self._is_copied(there):
            here.symlink_to(os.path.relpath(there, path.parent.resolve()))
        elif self._needs_contents(there, place):
            self._put_contents(there, place)
        elif self._is_result(path, place):
            self._put_result(there, place)
        elif there != self.target and not there.is_relative_to(self.target):
            here.symlink_to(there)

    def _is_copied(self, there: Path) -> bool:
        return not there.is_relative_to(self.target) and not is_below_left_out(there, self.root)

    def _needs_contents(self, there: Path, place: Path) -> bool:
        """Whether a converted file lies behind a link, or one that the script writes to."""
        is_written_into = any(self.root / place in path.parents for path in self._written.paths)
        is_above = self.root.is_relative_to(there)
        return (is_written_into or any(link.is_relative_to(there) for link in self._outside)) and not is_above

    def _put_result(self, there: Path, place: Path) -> None:
        """Behind a link out of the project lies what runs of the copy write to."""
        if there.is_file():
            self._large(FolderEntry(there, EntryKind.LARGE, there.stat().st_size), place)
        else:
            (self.whole / place).mkdir()
            self._leave_out(place, f"a link to {there}")

    def _put_contents(self, there: Path, place: Path) -> None:
        """Behind a link out of the project lies what is converted or written: the copy gets files of its own."""
        if not there.is_dir():
            self._inner[there] = place
            self._copy(FolderEntry(there, EntryKind.CODE), place)
            return
        (self.whole / place).mkdir(parents=True, exist_ok=True)
        for entry in survey(there, self._outside):
            inner = place / entry.path.relative_to(there)
            self._inner[entry.path.resolve()] = inner
            self._put[entry.kind](entry, inner)


def _move(whole: Path, target: Path) -> Iterator[str]:
    """To its place at once; over a copy that is there thing by thing, each of them old or new.

    Only code is replaced; of what its owner changed since the old text stays beside it. Gives the names of those.
    """
    if not target.exists():
        whole.rename(target)
        return
    record = _record(target)
    for folder, names, files in os.walk(whole):
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]
        yield from _move_all(Path(folder), [*files, *links], whole, target, record)


def _move_all(
    folder: Path, names: list[str], whole: Path, target: Path, record: Mapping[str, str]
) -> Iterator[str]:
    inner = folder.relative_to(whole)
    here = _own_folder(target, inner)
    for name in names:
        new, path = folder / name, str(inner / name)
        is_code = new.suffix == ".py" and not new.is_symlink()
        if here is None and is_code:
            raise SourceError(f"{target / inner}: is a link, so {name} cannot be put there; remove the link")
        if here is None or name != RECORD and os.path.lexists(here / name) and not is_code:
            continue
        place = here / name
        if _same(new, place):
            continue
        if os.path.lexists(place) and name != RECORD and record.get(path) != _hash(place):
            beside = _free_name(place)
            os.replace(place, beside)
            yield f"{path} is {beside.name} now"
        os.replace(new, place)


def _free_name(place: Path) -> Path:
    names = (place.with_name(f"{place.name}.mine{number or ''}") for number in count())
    return next(name for name in names if not os.path.lexists(name))


def _own_folder(target: Path, inner: Path) -> Path | None:
    """The folder of the copy, made if need be; None where a link of its owner's leads elsewhere."""
    here = target
    for part in inner.parts:
        here /= part
        if here.is_symlink():
            return None
        here.mkdir(exist_ok=True)
    return here


def _same(new: Path, place: Path) -> bool:
    return not place.is_symlink() and place.is_file() and new.read_bytes() == place.read_bytes()


def _record(target: Path) -> Mapping[str, str]:
    try:
        read = json.loads((target / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(path): str(digest) for path, digest in read.items()} if isinstance(read, dict) else {}


def _hash(path: Path) -> str:
    return "" if path.is_symlink() or not path.is_file() else hashlib.sha256(path.read_bytes()).hexdigest()


def _holds_few(folder: Path) -> bool:
    """Whether a link for each file below a folder takes no time."""
    names = (name for _, folders, files in os.walk(folder) for name in (*folders, *files))
    return next(islice(names, LINKED_EACH, None), None) is None


def _named(place: Path, what: str) -> str:
    return f"{place} ({what})" if what else str(place)
