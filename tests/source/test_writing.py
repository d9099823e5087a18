"""Several files are written together or not at all, whatever happens on the way."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source.writing import write_atomically, write_together

NAMES = ("a.py", "b.py", "c.py")


@pytest.fixture
def files(tmp_path: Path) -> dict[Path, bytes]:
    """What is to be written: two files that are there, and a new one."""
    for name in NAMES[:2]:
        (tmp_path / name).write_text(f"old {name}")
    return {tmp_path / name: b"new" * 1000 for name in NAMES}


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


OLD = {name: f"old {name}" for name in NAMES[:2]}
NEW = dict.fromkeys(NAMES, "new" * 1000)


def test_all_are_written(tmp_path: Path, files: dict[Path, bytes]) -> None:
    write_together(files)
    assert contents(tmp_path) == NEW


@pytest.mark.parametrize("number", range(3))
def test_a_failure_in_the_middle_leaves_every_file_as_it_was(
    tmp_path: Path, files: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    swap, done = os.replace, []

    def failing(source: Path, target: Path) -> None:
        if len(done) == number:
            done.append(target)
            raise PermissionError(13, "Permission denied")
        done.append(target)
        swap(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(SourceError, match=f"{NAMES[number]}: cannot be written"):
        write_together(files)

    assert contents(tmp_path) == OLD


def test_a_full_disk_leaves_every_file_as_it_was(tmp_path: Path, files: dict[Path, bytes]) -> None:
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    files[tmp_path / "c.py"] = b"new" * 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, largest[1]))
    try:
        with pytest.raises(SourceError, match=r"c\.py: cannot be written \(File too large\)"):
            write_together(files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, largest)
        signal.signal(signal.SIGXFSZ, heard)

    assert contents(tmp_path) == OLD


STEPS = ("replace", "unlink", "link", "chmod", "fsync", "close", "chown", "utime")


def written_by_a_child(files: dict[Path, bytes], moment: int, number: signal.Signals) -> int:
    """Write in a process of its own that gets a signal before its `moment`-th step; returns how it ended."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    with contextlib.suppress(BaseException):
        signal.signal(number, signal.SIG_DFL) if number is not signal.SIGKILL else None
        steps = iter(range(1, 1000))
        for name in STEPS:
            setattr(os, name, signalled(getattr(os, name), steps, moment, number))
        write_together(files)
        os._exit(0 if next(steps) > moment else 3)  # 3: there are no more steps
    os._exit(4)


def signalled(
    step: Callable[..., object], steps: Iterator[int], moment: int, number: signal.Signals
) -> Callable[..., object]:
    def run(*given: object, **named: object) -> object:
        if next(steps) == moment:
            os.kill(os.getpid(), number)
        return step(*given, **named)

    return run


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_ended_at_any_moment_each_file_is_old_or_new(
    tmp_path: Path, files: dict[Path, bytes], number: signal.Signals
) -> None:
    for moment in range(1, 100):
        (tmp_path / "c.py").unlink(missing_ok=True)
        for name, text in OLD.items():
            (tmp_path / name).write_text(text)
        ended = written_by_a_child(files, moment, number)
        found = contents(tmp_path)
        assert all(found.get(name) in (OLD.get(name), NEW[name]) for name in NAMES), moment
        if ended == 3 << 8:
            assert moment > 15
            return
        assert ended == number
        if number is not signal.SIGKILL:  # a signal that can wait waits until all is done
            assert found == NEW
    pytest.fail("it never came to an end")


def test_what_changed_since_it_was_read_is_not_overwritten(tmp_path: Path, files: dict[Path, bytes]) -> None:
    with pytest.raises(SourceError, match=r"b\.py: was changed while dp2ddp read it"):
        write_together(files, {tmp_path / "a.py": b"old a.py", tmp_path / "b.py": b"older"})
    assert contents(tmp_path) == OLD


def test_what_is_read_only_stays(tmp_path: Path, files: dict[Path, bytes]) -> None:
    (tmp_path / "b.py").chmod(0o444)
    program = "import os, ctypes, sys, pathlib; from dp2ddp.source.writing import write_together\n"
    program += "write_together({pathlib.Path(one): b'new' for one in ('a.py', 'b.py')})"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False,
        preexec_fn=like_anybody,
    )  # fmt: skip
    assert "b.py: cannot be written (it is read-only)" in result.stderr
    assert contents(tmp_path) == OLD


def like_anybody() -> None:
    """Permissions hold for root as well: CAP_DAC_OVERRIDE is lost with the next exec."""
    import ctypes

    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1)  # PR_CAPBSET_DROP


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_stays(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("old")
    os.chown(tmp_path / "a.py", 1234, 4321)
    (tmp_path / "a.py").chmod(0o750)

    write_atomically(tmp_path / "a.py", b"new")

    state = (tmp_path / "a.py").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (1234, 4321, 0o750)


def test_a_file_system_without_hard_links(
    tmp_path: Path, files: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_together(files)
    assert contents(tmp_path) == NEW
