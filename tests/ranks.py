"""A converted script under a real torchrun on the CPU: how it ended, how long it took, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
FORKED = Path(__file__).parent / "templates" / "forked_ranks.py"  # with the number of ranks, a script


def run_program(*words: str | Path) -> None:
    """A program of these tests, with its arguments, to a good end."""
    run = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,  # of a wait that has no end
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]


def found_on_ranks(program: Path, folder: Path, worlds: str, *names: str) -> dict[int, list[Any]]:
    """What each rank of a program found (`forked_ranks.find_on_ranks`), in rank order, by the number of ranks."""
    run_program(program, folder, worlds, *names)
    return {
        world: [json.loads((folder / f"{world}_{rank}.json").read_text()) for rank in range(world)]
        for world in map(int, worlds.split(","))
    }


@dataclass(frozen=True)
class Ending:
    code: int
    seconds: float
    stdout: str
    stderr: str
    left_behind: int


def torchrun(script: Path, *arguments: str, ranks: int = 2, interrupt_at: str | None = None) -> Ending:
    """Run to the end; with `interrupt_at`, Ctrl-C when that text has been printed (seconds from there)."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*TORCHRUN, str(ranks), str(script), *arguments],
        cwd=script.parent,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches a whole process group: one of its own
    )
    start = time.monotonic()
    printed = ""
    if interrupt_at is not None:
        printed = read_until(process, interrupt_at)
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    seconds = time.monotonic() - start
    return Ending(process.returncode, seconds, printed + stdout, stderr, end_all(script))


def read_until(process: subprocess.Popen[str], text: str) -> str:
    printed = ""
    assert process.stdout is not None
    for line in process.stdout:
        printed += line
        if text in line:
            break
    return printed


def end_all(script: Path) -> int:
    """How many processes still run a script three seconds later; they are ended."""
    _, alive = psutil.wait_procs(
        [p for p in psutil.process_iter() if str(script) in arguments_of(p)], timeout=3
    )
    for process in alive:
        process.kill()
    return len(alive)


def arguments_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:  # ended meanwhile
        return []
