"""What memory there is, in containers of either kind; what ranks hold."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.runtime.process import room
from dp2ddp.runtime.process.room import CONTAINER, MACHINE, Room, control_groups, held_by, read_room
from dp2ddp.runtime.run_folder import RankStatus, write_status
from dp2ddp.runtime.stage import Stage

MB = 2**20


def groups_of(folder: Path, cgroup: str) -> list[Room]:
    """Of a process that belongs to these, where groups are mounted in `folder`."""
    process = folder / "proc"
    process.mkdir()
    (process / "cgroup").write_text(cgroup)
    return list(control_groups(process, folder / "cgroup"))


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("memory_", "memory.")).write_text(f"{content}\n")


def version_2(folder: Path, limit: object, used: int, cached: int = 0) -> None:
    stat = f"anon 5\ninactive_file {cached // 2}\nactive_file {cached // 2}\nslab 3"
    group(folder, memory_max=limit, memory_current=used, memory_stat=stat)


def version_1(folder: Path, limit: object, used: int, cached: int = 0) -> None:
    stat = f"cache 5\ntotal_inactive_file {cached}\ntotal_active_file 0"
    group(folder, memory_limit_in_bytes=limit, memory_usage_in_bytes=used, memory_stat=stat)


def test_limits_of_groups_above_count_as_well(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    version_2(top / "job", 4000 * MB, 3000 * MB, 500 * MB)
    version_2(top / "job" / "step", "max", 100 * MB)
    version_2(top / "job" / "step" / "task", 2000 * MB, 600 * MB)
    assert groups_of(tmp_path, "0::/job/step/task\n") == [
        Room(1400 * MB, 2000 * MB, CONTAINER),
        Room(1500 * MB, 4000 * MB, CONTAINER),
    ]


def test_a_container_sees_its_own_group_as_the_topmost(tmp_path: Path) -> None:
    version_2(tmp_path / "cgroup", 1000 * MB, 1200 * MB)
    assert groups_of(tmp_path, "0::/\n") == [Room(0, 1000 * MB, CONTAINER)], "never less than nothing"


def test_version_1_beside_version_2_without_memory(tmp_path: Path) -> None:
    top = tmp_path / "cgroup" / "memory"
    version_1(top, 2**63 - 4096, 9000 * MB)
    version_1(top / "docker" / "ab", 3000 * MB, 2500 * MB, 1000 * MB)
    belongs = "9:name=systemd:/\n4:memory:/docker/ab\n1:cpu,cpuacct:/x\n0::/\n"
    assert groups_of(tmp_path, belongs) == [Room(1500 * MB, 3000 * MB, CONTAINER)]


def test_a_container_may_be_called_what_its_host_calls_it(tmp_path: Path) -> None:
    top = tmp_path / "cgroup" / "memory"
    version_1(top, 3000 * MB, 500 * MB)  # what of the host's groups is mounted here is the container's alone
    assert groups_of(tmp_path, "4:memory:/docker/ab\n") == [Room(2500 * MB, 3000 * MB, CONTAINER)]


def test_no_groups_and_no_proc(tmp_path: Path) -> None:
    assert list(control_groups(tmp_path / "nowhere")) == []


def test_the_least_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    here = read_room()
    assert 0 < here.free <= here.limit
    monkeypatch.setattr(
        room, "control_groups", lambda process: [Room(1, 2, CONTAINER), Room(2**60, 2**60, CONTAINER)]
    )
    assert read_room() == Room(1, 2, CONTAINER)
    monkeypatch.setattr(room, "control_groups", lambda process: [Room(2**60, 2**60, CONTAINER)])
    assert read_room().of == MACHINE


def fork_holding(size: int) -> int:
    """A child that has filled so many bytes, and waits."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        filled = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        filled.write(bytes(size))
        os.write(writable, b".")
        signal.pause()
        os._exit(0)
    os.read(readable, 1)
    os.close(readable)
    os.close(writable)
    return pid


def test_ranks_hold_what_they_do_not_share_with_the_process_that_they_come_from(tmp_path: Path) -> None:
    stage = Stage(script="a", name="a", mode="ddp", world=2, folder=str(tmp_path), run_folder=str(tmp_path))
    ours = bytearray(os.urandom(100 * MB))
    pids = [fork_holding(40 * MB), fork_holding(60 * MB)]
    try:
        for rank, pid in enumerate(pids):
            write_status(tmp_path, rank, RankStatus(pid))
        held = held_by(stage, os.getpid())
        assert 80 * MB < held < 150 * MB, (held, len(ours))
        write_status(tmp_path, 1, RankStatus(pids[1], code=0))
        assert 25 * MB < held_by(stage, os.getpid()) < 90 * MB, "one that is over holds nothing"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert held_by(stage, os.getpid()) == 0


def test_a_rank_is_ended_before_the_user_s_own_programs() -> None:
    code = (
        "import os\nfrom dp2ddp.runtime.processes import end_before_others\nend_before_others()\n"
        "print(open('/proc/self/oom_score_adj').read())\nos.execvp('cat', ['cat', '/proc/self/oom_score_adj'])"
    )
    child = subprocess.run([sys.executable, "-uc", code], stdout=subprocess.PIPE, text=True, check=True)
    assert child.stdout.split() == ["500", "500"], "what it starts as well"
