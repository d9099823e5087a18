"""Scratch folders go with their owner, however it ends; nobody else's are touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dp2ddp.runtime.process import scratch
from dp2ddp.runtime.process.scratch import PREFIX, remove_folder, scratch_folder

OWNER = """
import sys, time
from dp2ddp.runtime.process.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "copy").write_text("large")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go, empty."""
    room = tmp_path / "temporary"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    return room


def owner_in(room: Path) -> tuple[subprocess.Popen[str], Path]:
    """Another process with a scratch folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], env={**os.environ, "TMPDIR": str(room)}, stdin=-1, stdout=-1, text=True
    )
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_folder_is_gone_when_its_block_is_over(room: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == room.resolve()
        (folder / "file").touch()
    with pytest.raises(KeyError), scratch_folder():
        raise KeyError
    assert list(room.iterdir()) == []


def test_what_a_killed_owner_left_goes_with_the_next_start(room: Path) -> None:
    process, left = owner_in(room)
    end(process)
    assert (left / "copy").exists()
    with scratch_folder() as folder:
        assert list(room.iterdir()) == [folder]


def test_the_folder_of_an_owner_that_lives_stays(room: Path) -> None:
    process, theirs = owner_in(room)
    try:
        with scratch_folder():
            assert (theirs / "copy").read_text() == "large"
        assert list(room.iterdir()) == [theirs]
    finally:
        end(process)


def test_links_files_and_other_names_stay_and_so_do_folders_of_other_users(
    room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data").touch()
    (room / f"{PREFIX}link").symlink_to(tmp_path / "mine")
    (room / f"{PREFIX}file").touch()
    (room / "dp2ddp-page").mkdir()
    with scratch_folder():
        pass
    assert (tmp_path / "mine" / "data").exists()
    assert len(list(room.iterdir())) == 3
    (room / f"{PREFIX}theirs").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    with scratch_folder():
        pass
    assert (room / f"{PREFIX}theirs").exists()


def test_a_second_signal_does_not_break_the_removal_off(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends Ctrl-C as often as somebody presses it; `timeout` and some shells send TERM twice."""

    def remove_late(folder: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        remove_folder(folder)

    monkeypatch.setattr(scratch, "remove_folder", remove_late)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), scratch_folder() as folder:
        (folder / "copy").touch()
    assert list(room.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_while_the_folder_is_made_removes_it(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp

    def slow(*args: str, **kwargs: str) -> str:
        path = make(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGINT)
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", slow)
    with pytest.raises(KeyboardInterrupt), scratch_folder():
        pytest.fail("the signal is older than the block")
    assert list(room.iterdir()) == []


def test_a_closed_folder_is_opened_up_and_no_link_is_followed(tmp_path: Path) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "folder"
    mine.mkdir(mode=0o500)
    (folder / "closed").mkdir(parents=True)
    (folder / "closed" / "file").touch()
    (folder / "link").symlink_to(mine)
    (folder / "closed").chmod(0o500)
    remove_folder(folder)
    assert not folder.exists()
    assert mine.stat().st_mode & 0o777 == 0o500
