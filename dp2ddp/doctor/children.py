"""Processes that the doctor starts, with a limit; whatever happens, none of them stays."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dp2ddp
from dp2ddp.runtime.process.launch_command import environment
from dp2ddp.runtime.processes import kill_tree, parent_variable


@dataclass(frozen=True)
class Ended:
    """How a process ended; `code` None: it was ended, because its time was up."""

    code: int | None
    stdout: str = ""
    stderr: str = ""

    @property
    def last_line(self) -> str:
        """What Python says last of an error."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else "without a word"


@contextlib.contextmanager
def started(command: Sequence[str], starts_others: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A process of ours; at the end of the block neither it runs, nor what it started."""
    package = str(Path(dp2ddp.__file__).resolve().parent.parent)
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**environment(), "PYTHONPATH": path, **parent_variable()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                if starts_others:  # which needs psutil
                    kill_tree(process.pid)
                process.kill()


def wait(process: subprocess.Popen[str], until: float) -> Ended:
    """Its end, if it comes before this moment (time.monotonic())."""
    try:
        said = process.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return Ended(None)
    return Ended(process.returncode, *said)
