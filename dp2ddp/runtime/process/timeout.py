"""How long something that runs may stand still: the parent's side, without torch.

It moves when it says so (heartbeats), and it is alive while it computes: tokenising a corpus takes an hour without a
step. Who waits takes no processor time: gloo, a lock and a pipe sleep in the kernel, and a loop that looks and sleeps
takes a few hundredths. A process that has opened a GPU may spin while it waits for it, so its time says nothing.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

_SHARE = 0.1  # of one processor: below it, it waits; a machine may have ten times as much to do as it has processors
_LOOKS = 20  # in the time that it is given
LONGEST = 30  # times as long, and it is given up although it computes: a loop may have no end
_GPUS = ("/dev/nvidia", "/dev/kfd")


class Timeout:
    """`timeout`: seconds without a movement and without computing; None: for ever."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._moved = self._alive = self._looked = time.monotonic()
        # by process: its processor time when it was last known to be alive
        self._taken: dict[int, float] = {}

    def moved(self) -> None:
        """It said so."""
        self._moved = self._alive = time.monotonic()
        self._taken.clear()

    def look(self, processes: Iterable[int]) -> None:
        """Ask processes (and those below them) now and then whether they compute."""
        if self._timeout is None or time.monotonic() - self._looked < self._timeout / _LOOKS:
            return
        self._looked = time.monotonic()
        times = {pid: processor_time(pid) for pid in processes}
        before = {pid: min(self._taken.get(pid, seconds), seconds) for pid, seconds in times.items()}
        if any(times[pid] - before[pid] >= _SHARE * self._timeout for pid in times):
            self._alive, before = self._looked, times
        self._taken = before

    def is_over(self, allowance: float = 0.0) -> bool:
        """`allowance`: seconds more."""
        if self._timeout is None:
            return False
        now = time.monotonic() - allowance
        return now - self._alive > self._timeout or now - self._moved > LONGEST * self._timeout

    @property
    def why(self) -> str:
        """Why it is over, in words."""
        assert self._timeout is not None
        if time.monotonic() - self._alive > self._timeout:
            return f"nothing moved for {self._timeout:g} seconds"
        return (
            f"no step, no backward and no batch for {LONGEST * self._timeout:g} seconds, though it computes; "
            "a longer --timeout gives it longer"
        )


def processor_time(pid: int) -> float:
    """Seconds that a process and those below it have computed."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return sum(map(_own_time, (process, *process.children(recursive=True))))
    return 0.0


def _own_time(process: psutil.Process) -> float:
    """With that of children that have ended."""
    with suppress(psutil.Error):
        return 0.0 if _has_gpu(process.pid) else sum(process.cpu_times()[:4])
    return 0.0


def _has_gpu(pid: int) -> bool:
    for handle in glob.iglob(f"/proc/{pid}/fd/*"):
        with suppress(OSError):
            if os.readlink(handle).startswith(_GPUS):
                return True
    return False
