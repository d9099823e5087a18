"""Processes that we started, and what they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

from dp2ddp.signals import signals_wait

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


_PARENT = "DP2DDP_PARENT"


def parent_variable() -> dict[str, str]:
    """For the environment of a process that this one starts, and that calls `die_with_parent`."""
    return {_PARENT: str(os.getpid())}


def die_with_parent(parent: int | None = None) -> None:
    """Linux: the kernel ends this process when its parent ends, however that happens, so no rank is left behind.

    `parent`: the number of the process that started this one, where `parent_variable` did not tell; a parent that
    ended before the kernel was asked gives no signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        given = os.environ.pop(_PARENT, None)
        if parent is None and given is not None:
            parent = int(given)
        if parent is not None and os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def children_die_with_us() -> None:
    """Those that this process forks from now on, and theirs: workers of loaders, ranks that a script starts.

    The kernel counts the thread that forked as the parent: one that another thread starts may outlive it.
    """
    from_main, parent = True, 0

    def before() -> None:
        nonlocal from_main, parent
        from_main = threading.current_thread() is threading.main_thread()
        parent = os.getpid()

    def in_child() -> None:
        if from_main:
            die_with_parent(parent)

    os.register_at_fork(before=before, after_in_child=in_child)


def end_before_others() -> None:
    """Linux: where memory is lacking the kernel ends this process, and what it starts, and nobody else's."""
    with contextlib.suppress(OSError):  # no such file, or a container that has it read-only
        Path("/proc/self/oom_score_adj").write_text("500", encoding="utf-8")


def adopt_orphans() -> None:
    """Linux: processes below us whose parent ended become our children, where kill_tree finds them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_children() -> None:
    """Everything that this process started and that still runs."""
    import psutil  # the doctor's processes do without it

    for child in psutil.Process().children():
        kill_tree(child.pid)


def kill_tree(pid: int) -> None:
    """End a process that we started, and everything that it started."""
    import psutil

    with signals_wait(), contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family[:-1], timeout=3)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, also where nobody has asked for its exit code yet."""
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
