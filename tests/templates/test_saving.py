"""torch.save that an interrupted run cannot harm, and that keeps what torch.save keeps of a file."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dp2ddp.templates.saving import save_completely

SAVED = {"weight": torch.ones(3)}
NOBODY = 65534


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "best.pt"
    torch.save({"weight": torch.zeros(3)}, path)
    return path


@pytest.fixture
def old_for_all() -> Iterator[Path]:
    """The same in a folder that everybody may write to; pytest's own are the user's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "best.pt"
        torch.save({"weight": torch.zeros(3)}, path)
        yield path


def is_new(path: Path) -> bool:
    return bool(torch.equal(torch.load(path)["weight"], SAVED["weight"]))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("rights", [0o600, 0o640, 0o664, 0o666])
def test_an_existing_file_keeps_its_rights(old: Path, rights: int) -> None:
    old.chmod(rights)
    save_completely(SAVED, old)
    assert (is_new(old), mode(old)) == (True, rights)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_those_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        save_completely(SAVED, tmp_path / "moved.pt")
        torch.save(SAVED, tmp_path / "saved.pt")
    finally:
        os.umask(before)
    assert mode(tmp_path / "moved.pt") == mode(tmp_path / "saved.pt") == 0o666 & ~umask


@pytest.mark.parametrize("rights", [0o600, 0o644])
def test_nobody_else_can_read_what_is_not_complete(
    old: Path, monkeypatch: pytest.MonkeyPatch, rights: int
) -> None:
    old.chmod(rights)
    seen, save = [], torch.save

    def look(obj: Any, f: Any) -> None:
        save(obj, f)
        seen.append((mode(Path(f).parent), mode(Path(f))))

    monkeypatch.setattr(torch, "save", look)
    save_completely(SAVED, old)
    assert seen == [(0o700, rights)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_and_group_are_kept(old: Path) -> None:
    os.chown(old, NOBODY, 1234)
    save_completely(SAVED, old)
    assert is_new(old)
    assert (old.stat().st_uid, old.stat().st_gid) == (NOBODY, 1234)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_that_is_open_to_all_stays_theirs(old_for_all: Path) -> None:
    """Who cannot give the new file away writes into the old one, as torch.save does."""
    old = old_for_all
    old.chmod(0o666)
    inode = old.stat().st_ino
    as_nobody(lambda: save_completely(SAVED, old))
    assert (is_new(old), old.stat().st_uid, old.stat().st_ino) == (True, 0, inode)
    assert list(old.parent.iterdir()) == [old]


def test_a_file_that_must_not_be_written_is_refused_as_torch_refuses_it(old_for_all: Path) -> None:
    old = old_for_all
    old.chmod(0o444)

    def refuse() -> None:
        for save in (torch.save, save_completely):
            with pytest.raises(RuntimeError, match="denied"):
                save(SAVED, old)

    as_nobody(refuse)
    assert not is_new(old)


def as_nobody(work: Callable[[], None]) -> None:
    """In a child without root's rights."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_another_name_of_the_file_is_written_too(old: Path) -> None:
    other = old.with_name("epoch3.pt")
    os.link(old, other)
    save_completely(SAVED, old)
    assert is_new(other)
    assert old.samefile(other)


@pytest.mark.parametrize("relative", [True, False])
def test_a_link_is_followed(old: Path, relative: bool) -> None:
    link = old.with_name("latest.pt")
    link.symlink_to(old.name if relative else old)
    save_completely(SAVED, link)
    assert link.is_symlink()
    assert is_new(old)


ROOM_FOR_ONE = """
import os, sys, torch
from dp2ddp.templates.saving import save_completely
path = sys.argv[1] + "/best.pt"
for number in range(3):
    save_completely(torch.full((1_000_000,), float(number)), path)
    print(float(torch.load(path).mean()), os.listdir(sys.argv[1]))
try:
    save_completely(torch.ones(3_000_000), path)
except RuntimeError:
    print("full", os.listdir(sys.argv[1]))
"""


def test_where_there_is_room_for_one_the_old_file_is_written_over(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("mounts of one's own are not permitted here")
    command = [sys.executable, "-c", ROOM_FOR_ONE, str(tmp_path)]
    mount = f"mount -t tmpfs -o size=6M tmpfs {tmp_path} && exec {shlex.join(command)}"
    ended = subprocess.run(
        ["unshare", "-m", "bash", "-c", mount], capture_output=True, text=True, timeout=120
    )
    assert ended.stdout.splitlines() == [
        *(f"{number} ['best.pt']" for number in (0.0, 1.0, 2.0)),
        "full ['best.pt']",
    ], ended.stderr


KILLED = """
import sys, torch
from dp2ddp.templates import saving
save = torch.save
def never_ends(obj, f):
    save(obj, f)
    print("half", flush=True)
    sys.stdin.read()
torch.save = never_ends
saving.save_completely({"weight": torch.ones(3)}, sys.argv[1])
"""


def test_a_kill_leaves_the_old_file_and_one_folder_that_the_next_save_takes_away(old: Path) -> None:
    for _ in range(2):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(old)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"half\n"
            process.send_signal(signal.SIGKILL)
        assert not is_new(old)
        assert {path.name for path in old.parent.iterdir()} == {"best.pt", ".best.pt.unfinished"}
    save_completely(SAVED, old)
    assert is_new(old)
    assert list(old.parent.iterdir()) == [old]


def test_nothing_behind_a_link_that_stands_in_the_way_is_touched(old: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "best.pt").write_text("mine")
    (old.parent / ".best.pt.unfinished").symlink_to(other)
    save_completely(SAVED, old)
    assert is_new(old)
    assert (other / "best.pt").read_text() == "mine"


def test_what_is_written_is_on_the_disk_before_it_has_the_name(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("sync"), sync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    save_completely(SAVED, old)
    assert done == ["sync", "replace"]


def test_an_open_file_is_written_where_it_stands(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b"head")
        save_completely(SAVED, file)
    assert (tmp_path / "a").read_bytes()[:6] == b"headPK"
