"""Files of the user's are written all together or not at all; at any moment each of them is old or new.

Whoever else writes there is noticed: a file that was made or changed meanwhile is not overwritten.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.signals import signals_wait
from dp2ddp.source.git import mode_of_new_files


@dataclass(frozen=True)
class _Staged:
    """A file about to be made or changed: its texts lie beside it under names of their own."""

    target: Path
    new: Path
    old: Path | None = None  # None: there is no such file yet
    # A rename would part it from its other names (hard links), or take it from its owner: it is written as an editor
    # writes it. Killed in these microseconds it may be neither old nor new; both texts lie beside it.
    written_through: bool = False

    def put(self) -> None:
        """Change it; or make it, unless somebody else has."""
        if self.old:
            self._become(self.new)
        else:
            _make(self.target, self.new)

    def put_back(self) -> None:
        """As it was."""
        if self.old:
            self._become(self.old)
        else:
            self.target.unlink(missing_ok=True)

    def _become(self, text: Path) -> None:
        if self.written_through:
            _overwrite(self.target, text.read_bytes())
        else:
            os.replace(text, self.target)

    @property
    def beside(self) -> tuple[Path, ...]:
        """What is not needed any more in the end."""
        return (self.new, self.old) if self.old else (self.new,)


def _make(target: Path, text: Path) -> None:
    try:
        os.link(text, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(text, target)


def write_atomically(path: str | Path, data: bytes) -> None:
    """One file: all of it or nothing.

    A link stays a link (the file behind it is written), and what is no file, like /dev/null, stays what it is.
    """
    write_together({Path(path): data})


def write_together(files: Mapping[Path, bytes], read: Mapping[Path, bytes | None] | None = None) -> None:
    """All files, or none. `read` says what some held when they were read (None: there was no such file): who has
    changed or appeared since is not overwritten.

    New texts are written beside the files first, where a full disk does no harm; then they take their places, which
    needs no room. Modes, owners and hard links stay. A signal waits until it is done; after a SIGKILL each file is old
    or new.
    """
    plain = {
        path: data for path, data in files.items() if path.is_file() or path.is_dir() or not path.exists()
    }
    for path in files.keys() - plain.keys():
        with _source_errors(path):
            path.write_bytes(files[path])
    with signals_wait():  # it takes milliseconds
        staged: list[_Staged] = []
        needed: list[Path] = []  # old texts that could not be put back
        try:
            for path, data in plain.items():
                with _source_errors(path):
                    staged.append(_stage(Path(os.path.realpath(path)), data))
            _refuse_changed(read or {})
            _swap(staged, needed)
        finally:
            for path in (path for each in staged for path in each.beside if path not in needed):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)


def refuse_to_overwrite(path: Path, data: bytes, *, force: bool) -> None:
    """A SourceError where something else than `data` stands, unless it is asked for; a link is never written through.

    What is no file, like /dev/stdout, is no link either, though it may look like one.
    """
    if path.is_file() and path.read_bytes() == data:
        return
    if path.is_symlink() and (path.is_file() or not path.exists()):
        raise SourceError(
            f"{path}: is a link to {os.readlink(path)}, which stays as it is; remove the link, or name another file "
            "with -o"
        )
    if path.exists() and not force:
        raise SourceError(f"{path}: exists already; use --force to overwrite it, or -o to write elsewhere")


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """No other dp2ddp converts in this folder meanwhile: scripts in it share one module with helpers.

    Where nothing can be locked (Windows, some network file systems), who came first is noticed all the same.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _source_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: cannot be written ({error.strerror or error})") from error


def _stage(target: Path, data: bytes) -> _Staged:
    if target.is_dir():
        raise IsADirectoryError(None, "Is a directory")
    is_there = target.exists()
    if is_there and not os.access(target, os.W_OK):  # renaming alone would not ask
        raise PermissionError(None, "it is read-only")
    has_other_names = is_there and target.stat().st_nlink > 1
    with contextlib.ExitStack() as undoing:
        new = _beside(target, undoing)
        _write_safely(new, data)
        if is_there:
            written_through = not _as_it_was(target, new) or has_other_names
            old = _beside(target, undoing)
            if written_through:
                _write_safely(old, target.read_bytes())  # the old file itself will change
            else:
                _give_second_name(target, old)
            staged = _Staged(target, new, old, written_through)
        else:
            new.chmod(mode_of_new_files())  # mkstemp's own is 0600
            staged = _Staged(target, new)
        undoing.pop_all()
        return staged


def _write_safely(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _beside(target: Path, undoing: contextlib.ExitStack) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".dp2ddp")
    undoing.callback(Path(name).unlink, missing_ok=True)
    os.close(handle)
    return Path(name)


def _as_it_was(target: Path, new: Path) -> bool:
    """Give it the owner, mode and extended attributes of the target; says whether the owner could be given."""
    state = target.stat()
    with contextlib.suppress(OSError):  # only root may give files away
        os.chown(new, state.st_uid, state.st_gid)
    shutil.copystat(target, new)
    os.utime(new)  # Python compiles again what is younger
    given = new.stat()
    return (given.st_uid, given.st_gid) == (state.st_uid, state.st_gid)


def _give_second_name(target: Path, old: Path) -> None:
    """The old file under another name, to be put back."""
    try:
        old.unlink()
        os.link(target, old)
    except OSError:  # a file system without hard links
        shutil.copy2(target, old)


def _overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as stream:
        if len(data) > path.stat().st_size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(stream.fileno(), 0, len(data))  # a full disk says so before anything is lost
        stream.write(data)
        stream.truncate()
        stream.flush()
        os.fsync(stream.fileno())


def _refuse_changed(read: Mapping[Path, bytes | None]) -> None:
    for path, data in read.items():
        with _source_errors(path):
            now = path.read_bytes() if os.path.exists(path) else None
        if now != data:
            what = "made" if data is None else "removed" if now is None else "changed"
            raise SourceError(f"{path}: was {what} while dp2ddp read it; nothing was written, run it again")


def _swap(staged: Sequence[_Staged], needed: list[Path]) -> None:
    for number, staged_file in enumerate(staged):
        try:
            staged_file.put()
        except OSError as error:
            begun = staged[: number + staged_file.written_through]  # a rename does all or nothing
            left_over = _put_back(begun, needed)
            raise SourceError(
                f"{staged_file.target}: cannot be written ({error.strerror}){left_over}"
            ) from error


def _put_back(changed: Sequence[_Staged], needed: list[Path]) -> str:
    """Undo what was done; says what could not be undone, and where its old text lies."""
    stuck = []
    for staged_file in reversed(changed):
        try:
            staged_file.put_back()
        except OSError:
            kept = staged_file.beside[1:]
            needed += kept
            stuck.append(" ".join([str(staged_file.target), *(f"(as it was: {path})" for path in kept)]))
    return f"; these are new, and could not be put back: {', '.join(stuck)}" if stuck else ""
