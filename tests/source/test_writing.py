"""Several files are written together or not at all, whatever happens on the way."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source.writing import refuse_to_overwrite, write_atomically, write_together
from tests.cli.scripts import like_anybody, python

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
    done: list[str] = []

    def failing(put: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        if Path(target).name in NAMES and Path(source).suffix == ".dp2ddp":
            done.append(Path(target).name)
            if len(done) == number + 1:
                raise FileExistsError(17, "File exists")
        put(source, target)

    monkeypatch.setattr(os, "replace", partial(failing, os.replace))
    monkeypatch.setattr(os, "link", partial(failing, os.link))
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
    result = python(tmp_path, "-c", program, preexec_fn=like_anybody)
    assert "b.py: cannot be written (it is read-only)" in result.stderr
    assert contents(tmp_path) == OLD


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


class TestOtherNames:
    """A hard link is one file under two names: both have the new text."""

    @pytest.fixture
    def twice(self, tmp_path: Path, files: dict[Path, bytes]) -> dict[Path, bytes]:
        (tmp_path / "b.py").chmod(0o640)
        (tmp_path / "second").mkdir()
        os.link(tmp_path / "b.py", tmp_path / "second" / "b.py")
        return files

    @pytest.mark.parametrize("length", [3, 3000])
    def test_both_have_the_new_text(self, tmp_path: Path, twice: dict[Path, bytes], length: int) -> None:
        number = (tmp_path / "b.py").stat().st_ino
        twice[tmp_path / "b.py"] = b"n" * length

        write_together(twice, {tmp_path / "b.py": b"old b.py"})

        assert (tmp_path / "second" / "b.py").read_bytes() == b"n" * length
        state = (tmp_path / "b.py").stat()
        assert (state.st_ino, state.st_nlink, state.st_mode & 0o777) == (number, 2, 0o640)
        assert sorted(os.listdir(tmp_path)) == [*NAMES, "second"]

    @pytest.mark.parametrize("step", ["posix_fallocate", "fsync"])
    def test_a_disk_that_is_full_leaves_every_file_as_it_was(
        self, tmp_path: Path, twice: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        number, before = (tmp_path / "b.py").stat().st_ino, getattr(os, step)
        heard: list[int] = []

        def full(handle: int, *given: int) -> None:
            if os.fstat(handle).st_ino == number and not heard:
                heard.append(handle)
                raise OSError(28, "No space left on device")
            before(handle, *given)

        monkeypatch.setattr(os, step, full)
        with pytest.raises(SourceError, match=r"b\.py: cannot be written \(No space left on device\)$"):
            write_together(twice)

        assert (tmp_path / "second" / "b.py").read_text() == "old b.py"
        (tmp_path / "second" / "b.py").unlink()
        (tmp_path / "second").rmdir()
        assert contents(tmp_path) == OLD

    def test_what_cannot_be_put_back_is_kept_and_named(
        self, tmp_path: Path, twice: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number, before = (tmp_path / "b.py").stat().st_ino, os.fsync

        def broken(handle: int) -> None:
            if os.fstat(handle).st_ino == number:
                raise OSError(5, "Input/output error")
            before(handle)

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(SourceError) as told:
            write_together(twice)

        (old,) = tmp_path.glob(".b.py.*.dp2ddp")
        assert f"(as it was: {old})" in str(told.value)
        assert old.read_text() == "old b.py"
        assert (tmp_path / "a.py").read_text() == "old a.py"

    def test_killed_at_any_moment_the_old_or_the_new_text_is_whole_somewhere(
        self, tmp_path: Path, twice: dict[Path, bytes]
    ) -> None:
        for moment in range(1, 100):
            for name, text in OLD.items():
                (tmp_path / name).write_text(text)
            (tmp_path / "c.py").unlink(missing_ok=True)
            ended = written_by_a_child(twice, moment, signal.SIGKILL)
            beside = [*tmp_path.glob(".b.py.*.dp2ddp"), tmp_path / "b.py"]
            assert {"old b.py", NEW["b.py"]} & {path.read_text() for path in beside}, moment
            for path in tmp_path.glob(".*.dp2ddp"):
                path.unlink()
            if ended == 3 << 8:
                assert moment > 15
                return
        pytest.fail("it never came to an end")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be somebody else")
def test_a_colleagues_file_stays_the_colleagues() -> None:
    """Who may write it, but not give it away, writes into it."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are for nobody else
        folder = Path(name)
        folder.chmod(0o777)
        path = folder / "a.py"
        path.write_text("old")
        os.chown(path, 1234, 4321)
        path.chmod(0o666)
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                os.setgroups([])
                os.setgid(5678)
                os.setuid(5678)
                write_atomically(path, b"new")
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        state = path.stat()
        assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (1234, 4321, 0o666)
        assert contents(folder) == {"a.py": "new"}


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_somebody_makes_meanwhile_is_not_overwritten(
    tmp_path: Path, files: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    before = os.replace

    def slow(source: Path, target: Path) -> None:
        before(source, target)
        (tmp_path / "c.py").write_text("somebody's")

    monkeypatch.setattr(os, "replace", slow)
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "No links")))
    with pytest.raises(SourceError, match=r"c\.py: cannot be written \(File exists\)"):
        write_together(files)
    assert contents(tmp_path) == {**OLD, "c.py": "somebody's"}


@pytest.mark.parametrize(
    ("held", "now", "what"), [(None, "theirs", "made"), (b"old", None, "removed"), (b"old", "x", "changed")]
)
def test_what_is_not_as_it_was_read_stays(
    tmp_path: Path, held: bytes | None, now: str | None, what: str
) -> None:
    if now is not None:
        (tmp_path / "a.py").write_text(now)
    with pytest.raises(SourceError, match=rf"a\.py: was {what} while dp2ddp read it; nothing was written"):
        write_together({tmp_path / "a.py": b"new"}, {tmp_path / "a.py": held})
    assert contents(tmp_path) == ({} if now is None else {"a.py": now})


class TestRefusing:
    @pytest.mark.parametrize("force", [True, False])
    @pytest.mark.parametrize("there", [True, False])
    def test_a_link_is_refused_wherever_it_leads(self, tmp_path: Path, force: bool, there: bool) -> None:
        if there:
            (tmp_path / "notes.txt").write_text("mine")
        (tmp_path / "out.py").symlink_to("notes.txt")
        with pytest.raises(SourceError, match=r"out\.py: is a link to notes\.txt, which stays as it is"):
            refuse_to_overwrite(tmp_path / "out.py", b"new", force=force)

    def test_what_is_no_file_is_written_to_by_its_link_as_well(self, tmp_path: Path) -> None:
        (tmp_path / "out.py").symlink_to("/dev/null")
        refuse_to_overwrite(tmp_path / "out.py", b"new", force=True)

    def test_the_same_text_is_nothing_to_ask_for(self, tmp_path: Path) -> None:
        (tmp_path / "out.py").write_text("new")
        refuse_to_overwrite(tmp_path / "out.py", b"new", force=False)
        with pytest.raises(SourceError, match="exists already; use --force"):
            refuse_to_overwrite(tmp_path / "out.py", b"newer", force=False)
        refuse_to_overwrite(tmp_path / "out.py", b"newer", force=True)
