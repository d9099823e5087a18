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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from dp2ddp.copies.cloning import clone, make_like
from dp2ddp.errors import SourceError
from dp2ddp.source.folders import project_root
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
    place = Path(os.path.realpath(target))
    _refuse_target(place, root, force)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as room:
            copying = _Copying(root, Path(room) / place.name, place, _Results(tuple(written), root, entry))
            copying.run(converted)
            kept = tuple(_move(copying.whole, place))
    except OSError as error:
        raise SourceError(f"{error.filename or place}: cannot be written ({error.strerror})") from error
    return Copy(target / entry.relative_to(root), tuple(copying.linked), tuple(copying.left_out), kept)


class _Results:
    """What training makes: by the names that people give it, and by the texts in the script, which are paths, and
    beginnings and ends of names that it puts together. What a link to one led to would be written."""

    def __init__(self, written: tuple[str, ...], root: Path, entry: Path) -> None:
        """`written`: what the texts may lead to, from the script's folder or the project's."""
        every = (Path(os.path.normpath(start / text)) for start in {root, entry.parent} for text in written)
        self.paths = frozenset(path for path in every if root in path.parents)
        names = [name for text in written if len(name := os.path.basename(text)) > 2]
        self._beginnings = tuple(name for name in names if name.endswith(("_", "-", ".")))
        self._ends = (*RESULT_FILES, *(name for name in names if name.startswith(("_", "-", "."))))

    def hold(self, path: Path, inner: tuple[str, ...]) -> bool:
        """Whether a path of the project is one, or lies in `inner` folders of which one holds them."""
        name = path.name
        is_called_so = name.startswith(self._beginnings) or name.endswith(self._ends) or ".tfevents." in name
        return is_called_so or path in self.paths or any(part.lower() in RESULT_FOLDERS for part in inner)


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

    def __init__(self, root: Path, whole: Path, target: Path, results: _Results) -> None:
        self.root, self.whole, self.target = root, whole, target
        self.linked: list[str] = []
        self.left_out: list[str] = []
        self._results = results
        self._outside: list[Path] = []  # converted files that lie out of the project
        self._copied = 0  # bytes of results
        self._inner: dict[Path, Path] = {}  # files behind links out of the project -> where they are copied

    def run(self, converted: Mapping[Path, bytes]) -> None:
        self._outside = [path for path in converted if not path.is_relative_to(self.root)]
        self.whole.mkdir()
        shutil.copymode(self.root, self.whole)
        opened = [*converted, *(path / "a new file" for path in self._results.paths)]
        for entry in survey(self.root, opened, (self.target, self.whole.parent)):
            if entry.path.suffix != ".pyc" and entry.path.name != RECORD:
                self._put(entry, entry.path.relative_to(self.root))
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

    def _put(self, entry: FolderEntry, place: Path) -> None:
        match entry.kind:
            case EntryKind.FOLDER:
                make_like(entry.path, self.whole / place)
            case EntryKind.CODE | EntryKind.SMALL:
                self._copy(entry.path, place)
            case EntryKind.LARGE:
                self._put_large(entry.path, place, entry.size)
            case EntryKind.DATA:
                self._put_data(entry.path, place)
            case EntryKind.LINK:
                self._put_link(entry.path, place)

    def _copy(self, path: Path, place: Path) -> None:
        try:
            shutil.copy2(path, self.whole / place)
        except PermissionError:  # whoever starts the copy can read no more of the original
            (self.whole / place).unlink(missing_ok=True)
            self._leave_out(place, "cannot be read")

    def _put_large(self, path: Path, place: Path, size: int) -> None:
        if clone(path, self.whole / place):
            return
        if size <= COPIED:
            self._copy(path, place)
        elif not self._is_result(place, is_folder=False):
            self._link(path, place, size_text(size))
        elif size <= RESULT_COPIED and self._copied + size <= RESULTS_COPIED:
            self._copied += size
            self._copy(path, place)
        else:
            self._leave_out(place, size_text(size))

    def _put_data(self, path: Path, place: Path) -> None:
        """A folder of links to files, where that takes no time: what is new in it is the copy's."""
        is_folder, what = path.is_dir(), ""
        if not os.access(path, os.R_OK):
            what = "cannot be read"
        elif is_folder:
            what = f"a folder of more than {MANY} things"
        below = list(islice(path.rglob("*"), LINKED_EACH + 1)) if is_folder else []
        if self._is_result(place, is_folder):
            self._leave_out(place, what)
            if is_folder:
                (self.whole / place).mkdir()
        elif 0 < len(below) <= LINKED_EACH:
            self.linked.append(_named(place, "its files"))
            (self.whole / place).mkdir(exist_ok=True)
            for each in below:
                here = self.whole / place / each.relative_to(path)
                if each.is_dir() and not each.is_symlink():
                    here.mkdir(exist_ok=True)
                else:
                    here.symlink_to(each)
        else:
            self._link(path, place, what)

    def _is_result(self, place: Path, is_folder: bool) -> bool:
        return self._results.hold(self.root / place, place.parts if is_folder else place.parts[:-1])

    def _link(self, path: Path, place: Path, what: str) -> None:
        (self.whole / place).symlink_to(path)
        self.linked.append(_named(place, what))

    def _leave_out(self, place: Path, what: str) -> None:
        self.left_out.append(_named(place, what))

    def _put_link(self, path: Path, place: Path) -> None:
        """A link leads to the same place of the copy, or out of it to where it led.

        Behind one out of the project may lie what runs of the copy write to, or what is converted.
        """
        here, there = self.whole / place, Path(os.path.realpath(path))
        is_of_target = there.is_relative_to(self.target)
        is_inside = there.is_relative_to(self.root) and not is_below_left_out(there, self.root)
        if not there.exists():
            here.symlink_to(os.readlink(path))
        elif is_inside and not is_of_target:
            here.symlink_to(os.path.relpath(there, path.parent.resolve()))
        elif self._needs_contents(there, place):
            self._put_contents(there, place)
        elif self._is_result(place, there.is_dir()):
            if there.is_file():
                self._put_large(there, place, there.stat().st_size)
            else:
                here.mkdir()
                self._leave_out(place, f"a link to {there}")
        elif not is_of_target:
            here.symlink_to(there)

    def _needs_contents(self, there: Path, place: Path) -> bool:
        """Whether a converted file lies behind a link, or one that the script writes to."""
        is_written_into = any(self.root / place in path.parents for path in self._results.paths)
        is_above = self.root.is_relative_to(there)
        return (is_written_into or any(link.is_relative_to(there) for link in self._outside)) and not is_above

    def _put_contents(self, there: Path, place: Path) -> None:
        """The copy gets files of its own."""
        if not there.is_dir():
            self._inner[there] = place
            self._copy(there, place)
            return
        (self.whole / place).mkdir(parents=True, exist_ok=True)
        for entry in survey(there, self._outside):
            inner = place / entry.path.relative_to(there)
            self._inner[entry.path.resolve()] = inner
            self._put(entry, inner)


def _move(whole: Path, target: Path) -> Iterator[str]:
    """To its place at once; over a copy that is there thing by thing, each of them old or new.

    Only code is replaced; of what its owner changed since the old text stays beside it. Gives the names of those.
    """
    if not target.exists():
        whole.rename(target)
        return
    record = _record(target)
    for folder, names, files in os.walk(whole):
        inner = Path(folder).relative_to(whole)
        here = _own_folder(target, inner)
        for name in (*files, *(name for name in names if os.path.islink(os.path.join(folder, name)))):
            new = Path(folder, name)
            is_code = new.suffix == ".py" and not new.is_symlink()
            if here is None and is_code:
                raise SourceError(
                    f"{target / inner}: is a link, so {name} cannot be put there; remove the link"
                )
            if here is None or name != RECORD and os.path.lexists(here / name) and not is_code:
                continue
            place = here / name
            if is_code and os.path.lexists(place):
                now, path = _hash(place), str(inner / name)
                if now == _hash(new):
                    continue
                if now != record.get(path):
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


def _record(target: Path) -> Mapping[str, str]:
    try:
        read = json.loads((target / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(path): str(digest) for path, digest in read.items()} if isinstance(read, dict) else {}


def _hash(path: Path) -> str:
    return "" if path.is_symlink() or not path.is_file() else hashlib.sha256(path.read_bytes()).hexdigest()


def _named(place: Path, what: str) -> str:
    return f"{place} ({what})" if what else str(place)
