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
from dp2ddp.runtime.process.launch_command import outside_of_torchrun
from dp2ddp.runtime.processes import kill_tree, parent_variable


@dataclass(frozen=True)
class Ended:
    """How a process ended; `code` None: it was ended, because its time was up."""

    code: int | None
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """What Python says last of an error."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else "without a word"


class Child:
    """A process of ours, its output in files."""

    def __init__(self, command: Sequence[str], folder: Path, name: str, starts_others: bool = False) -> None:
        self._starts_others = starts_others
        self._stdout, self._stderr = folder / f"{name}.out", folder / f"{name}.err"
        package = str(Path(dp2ddp.__file__).resolve().parent.parent)
        variables = outside_of_torchrun()
        path = os.pathsep.join([package, *filter(None, [variables.get("PYTHONPATH")])])
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                env={"OMP_NUM_THREADS": "1", **variables, "PYTHONPATH": path, **parent_variable()},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def wait(self, until: float) -> Ended:
        """Its end, or its end at this moment (time.monotonic())."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
            code: int | None = self._process.returncode
        except subprocess.TimeoutExpired:
            self.end()
            code = None
        return Ended(code, _text(self._stdout), _text(self._stderr))

    def end(self) -> None:
        if self._process.poll() is None:
            if self._starts_others:
                kill_tree(self._process.pid)
            self._process.kill()
            self._process.wait()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def ended(*children: Child) -> Iterator[None]:
    """At the end of the block none of them runs."""
    try:
        yield
    finally:
        for child in children:
            child.end()
