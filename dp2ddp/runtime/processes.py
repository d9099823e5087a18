"""Processes that we started, and what they started."""

from __future__ import annotations

import contextlib

import psutil


def kill_tree(pid: int) -> None:
    """End a process that we started, and everything that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family[:-1], timeout=3)
