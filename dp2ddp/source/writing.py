"""Files of the user's are written all together or not at all; at any moment each of them is old or new."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.errors import SourceError

ENDING_US = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class _Staged:
    """A file about to change: its new text, and its old one, lie beside it under names of their own."""

    target: Path
    new: Path
    old: Path | None  # None: there was no such file

    def put(self) -> None:
        os.replace(self.new, self.target)

    def put_back(self) -> None:
        if self.old:
            os.replace(self.old, self.target)
        else:
            self.target.unlink(missing_ok=True)

    def clean(self) -> None:
        for path in (self.new, self.old):
            if path:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)


def write_atomically(path: str | Path, data: bytes) -> None:
    """One file: all of it or nothing.

    A link stays a link (the file behind it is written), and what is no file, like /dev/null, stays what it is.
    """
    write_together({Path(path): data})


def write_together(files: Mapping[Path, bytes], read: Mapping[Path, bytes] | None = None) -> None:
    """All files, or none. `read` says what some held when they were read: who has changed since is not overwritten.

    New texts are written beside the files first, where a full disk does no harm; then they take their places, which
    needs no room. Modes and owners stay. A signal waits until it is done; after a SIGKILL each file is old or new.
    """
    plain = {path: data for path, data in files.items() if not _is_special(path)}
    for path in files.keys() - plain.keys():
        with _source_errors(path):
            path.write_bytes(files[path])
    with _undisturbed():
        staged: list[_Staged] = []
        try:
            for path, data in plain.items():
                with _source_errors(path):
                    staged.append(_stage(Path(os.path.realpath(path)), data))
            _refuse_changed(read or {})
            _swap(staged)
        finally:
            for staged_file in staged:
                staged_file.clean()


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


@contextlib.contextmanager
def _source_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and `kill` are heard when the block is done: it takes milliseconds."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_US)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stage(target: Path, data: bytes) -> _Staged:
    if target.is_dir():
        raise IsADirectoryError(None, "Is a directory")
    if target.exists() and not os.access(target, os.W_OK):  # renaming alone would not ask
        raise PermissionError(None, "it is read-only")
    new = _beside(target)
    try:
        with new.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        _as_it_was(target, new)
        return _Staged(target, new, _second_name(target) if target.exists() else None)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _beside(target: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".dp2ddp")
    os.close(handle)
    return Path(name)


def _as_it_was(target: Path, new: Path) -> None:
    """Owner, mode and extended attributes of the target, or the mode of a new file (mkstemp's own is 0600)."""
    if not target.exists():
        mask = os.umask(0)
        os.umask(mask)
        new.chmod(0o666 & ~mask)
        return
    state = target.stat()
    with contextlib.suppress(OSError):  # only root may give files away
        os.chown(new, state.st_uid, state.st_gid)
    shutil.copystat(target, new)
    os.utime(new)  # Python compiles again what is younger


def _second_name(target: Path) -> Path:
    """The old file under another name, to be put back."""
    old = _beside(target)
    try:
        old.unlink()
        os.link(target, old)
    except OSError:  # a file system without hard links
        shutil.copy2(target, old)
    return old


def _refuse_changed(read: Mapping[Path, bytes]) -> None:
    for path, data in read.items():
        with _source_errors(path):
            if path.read_bytes() != data:
                raise SourceError(
                    f"{path}: was changed while dp2ddp read it; nothing was written, run it again"
                )


def _swap(staged: Sequence[_Staged]) -> None:
    for number, staged_file in enumerate(staged):
        try:
            staged_file.put()
        except OSError as error:
            left_over = _put_back(staged[:number])
            raise SourceError(
                f"{staged_file.target}: cannot be written ({error.strerror}){left_over}"
            ) from error


def _put_back(changed: Sequence[_Staged]) -> str:
    """Undo what was done; says what could not be undone."""
    stuck = []
    for staged_file in reversed(changed):
        try:
            staged_file.put_back()
        except OSError:
            stuck.append(str(staged_file.target))
    return f"; these are new, and could not be put back: {', '.join(stuck)}" if stuck else ""
