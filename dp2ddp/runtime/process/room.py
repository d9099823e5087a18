"""What memory there is, and what the ranks of a run hold of it; without torch.

A container, or a job of a cluster, may have less than the machine: the limits of this process's control group and of
those above it count (version 2: memory.max; version 1: memory.limit_in_bytes).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from dp2ddp.runtime.run_folder import read_statuses
from dp2ddp.runtime.stage import Stage

MACHINE, CONTAINER = "this machine", "this container"


@dataclass(frozen=True)
class Room:
    """Memory, in bytes: what is free, of how much there is in all, and of what."""

    free: int
    limit: int
    of: str = MACHINE


def read_room() -> Room:
    """The machine's memory, or a control group's around this process where that has less left."""
    memory = psutil.virtual_memory()
    rooms = [Room(memory.available, memory.total), *control_groups(Path("/proc/self"))]
    return min(rooms, key=lambda room: room.free)


def control_groups(process: Path, mounts: Path = Path("/sys/fs/cgroup")) -> Iterator[Room]:
    """The control groups with a limit that a process (its folder below /proc) is in, the innermost first."""
    try:
        lines = (process / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            yield from _groups(mounts, path, _VERSION_2)
        elif "memory" in controllers.split(","):
            yield from _groups(mounts / "memory", path, _VERSION_1)


# files of a group: its limit, what is used; and the lines of memory.stat that the kernel takes back
_Files = tuple[str, str, tuple[str, ...]]
_VERSION_2 = ("memory.max", "memory.current", ("inactive_file", "active_file"))
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
_NO_LIMIT = 2**60  # version 1 says it with a number of about 2**63


def _groups(top: Path, path: str, files: _Files) -> Iterator[Room]:
    """From the innermost group up to the one that is mounted at `top`.

    In a container `path` may be the host's own, of which nothing is mounted here but the container's part, as `top`.
    """
    group = Path(os.path.normpath(f"{top}{path}"))
    for each in (group, *group.parents):
        # not there, no limit ("max"), or a controller that is not on
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((each / file).read_text()) for file in files[:2])
            if limit < _NO_LIMIT:
                stat = dict(line.split() for line in (each / "memory.stat").read_text().splitlines())
                used -= sum(int(stat[name]) for name in files[2])
                yield Room(max(0, limit - used), limit, CONTAINER)


def count_kills() -> int | None:
    """How many processes the kernel has ended for lack of memory since it started; None where it does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="utf-8").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def held_by(stage: Stage, server: int) -> int:
    """Bytes that a run's ranks hold of their own now, and torchrun's agent; their loaders' workers are left out.

    server: the process that ranks are forked from. What they share with it is its own.
    """
    ranks = {status.pid for status in read_statuses(stage).values() if not status.is_over}
    parents = {parent for rank in ranks if (parent := _parent(rank)) is not None}
    shared = _own(server) * len(ranks) if server in parents else 0
    agents = parents - ranks - {server, os.getpid()}
    return max(0, sum(map(_own, ranks | agents)) - shared)


def _parent(pid: int) -> int | None:
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).ppid())
    return None


def _own(pid: int) -> int:
    """What no file is behind: the rest are libraries, and memory that processes share; 0 if it is gone."""
    with contextlib.suppress(psutil.Error):
        memory = psutil.Process(pid).memory_info()
        return int(memory.rss) - int(getattr(memory, "shared", 0))
    return 0
