"""Processes that we started, and what they started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def die_with_parent() -> None:
    """Linux: the kernel ends this process when its parent ends, however that happens, so no rank is left behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def children_die_with_us() -> None:
    """Those that this process forks from now on, and theirs: workers of loaders, ranks that a script starts.

    The kernel counts the thread that forked as the parent: one that another thread starts may outlive it.
    """
    from_main = True

    def before() -> None:
        nonlocal from_main
        from_main = threading.current_thread() is threading.main_thread()

    def in_child() -> None:
        if from_main:
            die_with_parent()

    os.register_at_fork(before=before, after_in_child=in_child)


def adopt_orphans() -> None:
    """Linux: processes below us whose parent ended become our children, where kill_tree finds them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_children() -> None:
    """Everything that this process started and that still runs."""
    for child in psutil.Process().children():
        kill_tree(child.pid)


def kill_tree(pid: int) -> None:
    """End a process that we started, and everything that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family[:-1], timeout=3)
