"""All questions, in order; those that take long in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.doctor.host import TWO_RANKS, Answer, answered, host_answers
from dp2ddp.doctor.torch_answers import broken_torch, driver_version, torch_answers
from dp2ddp.installed import install, missing_for_runs
from dp2ddp.runtime.process.launch_command import environment
from dp2ddp.runtime.processes import kill_tree, parent_variable

PACKAGE = Path(__file__).resolve().parents[1]
PROGRAM = str(PACKAGE / "doctor" / "torch_program.py")
AGENT = PACKAGE / "runtime" / "process" / "agent.py"
RANKS = 2


def examine(timeout: float, progress: Callable[[str], None]) -> Iterator[Answer]:
    """The answers, each as soon as it is there. `timeout`: seconds for torch, and for two ranks.

    `progress` gets what is waited for.
    """
    yield from host_answers()
    if importlib.util.find_spec("torch") is None:
        advice = f"converting and checking need none; to verify and to train: {install(missing_for_runs())}"
        yield answered("torch", "is not installed for this Python", advice, "bad")
        return
    with tempfile.TemporaryDirectory(prefix="dp2ddp-doctor-") as folder:
        progress("importing torch")
        said = ended([PROGRAM], timeout)
        if said.code != 0:
            slow = f"it was not there after {timeout:g} s; a slow disk? --timeout {2 * timeout:g}"
            yield broken_torch(slow if said.code is None else said.last_line)
            return
        yield from torch_answers(json.loads(said.stdout.splitlines()[-1]), driver_version())
        if importlib.util.find_spec("psutil") is None:
            yield answered(TWO_RANKS, "not tried: that needs psutil", install(["psutil"]))
            return
        progress("starting two ranks with torchrun; some seconds")
        yield two_ranks(Path(folder), timeout)


def two_ranks(folder: Path, timeout: float) -> Answer:
    """Start two ranks as a user does, by torchrun, and let them add numbers."""
    arguments = ["--standalone", "--nproc-per-node", str(RANKS), PROGRAM, str(folder)]
    end = ended([str(AGENT), str(folder), *arguments], timeout, starts_others=True)
    files = (folder / f"rank-{rank}" for rank in range(RANKS))
    reached = tuple(file.read_text() if file.exists() else "was not started" for file in files)
    own = folder / "torchrun.err"
    return ranks_answer(end, reached, timeout, own.read_text(errors="replace") if own.exists() else "")


def ranks_answer(end: Ended, reached: tuple[str, ...], timeout: float, agent: str = "") -> Answer:
    """`reached`: how far each rank came, in its own words; `agent`: what torchrun itself wrote."""
    if end.code == 0:
        seconds = json.loads(reached[0])
        times = ", ".join(f"{backend} in {value * 1000:.1f} ms" for backend, value in seconds.items())
        return answered(TWO_RANKS, f"met by torchrun, and added a megabyte: {times}")
    if end.code is None:
        stuck = "; ".join(f"rank {number} {words}" for number, words in enumerate(reached))
        text = f"not done after {timeout:g} s: {stuck}"
        advice = (
            f"where ranks do not meet: GLOO_SOCKET_IFNAME=lo, or a line `127.0.1.1 {socket.gethostname()}` in "
            "/etc/hosts; where they meet and NCCL hangs: NCCL_P2P_DISABLE=1, NCCL_DEBUG=INFO; on a slow machine: "
            "--timeout"
        )
    else:
        said = [*_errors(end.stderr)[:1], *_errors(agent)[-1:], f"torchrun ended with {end.code}"]
        text = f"failed: {said[0]}"
        advice = (
            "training with several processes fails in the same way; a sandbox or container must allow processes to "
            "meet on 127.0.0.1; NCCL_DEBUG=INFO tells more of NCCL's errors"
        )
    return answered(TWO_RANKS, text, advice, "bad")


def _errors(text: str) -> list[str]:
    """The lines that say an error: a rank's first one is what happened, torchrun's last one."""
    lines = (re.sub(r"^\[rank\d+\]: ?", "", line) for line in text.splitlines())
    return [line for line in lines if re.match(r"[\w.]*(?:Error|Exception)\b", line)]


# ---- processes with a limit; whatever happens, none of them stays


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


def ended(command: Sequence[str], seconds: float, starts_others: bool = False) -> Ended:
    """How a process of ours ends; where its time is up neither it stays, nor what it started."""
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, *command],
        env={**environment(), "PYTHONPATH": path, **parent_variable()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            said = process.communicate(timeout=seconds)
            return Ended(process.returncode, *said)
        except subprocess.TimeoutExpired:
            return Ended(None)
        finally:
            if process.poll() is None:
                if starts_others:  # which needs psutil
                    kill_tree(process.pid)
                process.kill()
