"""Programs on ranks, forked; a converted script under a real torchrun: how it ended, how long it took, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode, Stage

ROOT = Path(__file__).resolve().parent.parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
CALL = (
    "import sys; sys.path.insert(0, {root!r}); from tests.templates.forked_ranks import main; main({request})"
)


def run_program(
    server: Server, folder: Path, *words: str | Path, ranks: int = 0
) -> subprocess.CompletedProcess[str]:
    """`python PROGRAM ...` in a folder, or what torchrun makes of it, forked from the process that has torch.

    That saves 4 s a process. A rank that fails ends none of the others: what a test says of endings is said under a
    real torchrun.
    """
    with tempfile.TemporaryDirectory() as scratch:
        program = [*map(str, words)]
        request = {"words": program, "folder": str(folder), "ranks": ranks, "output": scratch}
        code = server.call("builtins:exec", CALL.format(root=str(ROOT), request=request), timeout=600)
        out, err = ((Path(scratch) / name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(program, -1 if code is None else code, out, err)


def found_on_ranks(
    server: Server, program: Path, folder: Path, worlds: str, *names: str
) -> dict[int, list[Any]]:
    """What each rank of a program found (`forked_ranks.find_on_ranks`), in rank order, by the number of ranks."""
    run = run_program(server, folder, program, folder, worlds, *names)
    assert run.returncode == 0, run.stderr[-3000:]
    return {
        world: [json.loads((folder / f"{world}_{rank}.json").read_text()) for rank in range(world)]
        for world in map(int, worlds.split(","))
    }


def stage_of(script: Path, mode: Mode, **more: Any) -> Stage:
    """A run of a script in its folder: on two virtual devices, what it prints kept, unless `more` says otherwise."""
    folder = str(script.parent)
    usual = {"world": 2, "folder": folder, "run_folder": f"{folder}/run", "name": script.name}
    return Stage(script=str(script), mode=mode, **{**usual, "capture": True, "real": False, **more})


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


def until(holds: Callable[[], object], seconds: float = 120) -> None:
    """Wait for what another process does; a busy machine takes long."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
