"""The command line and the environment of each mode."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dp2ddp.runtime.stage import Stage

_HERE = Path(__file__).parent
SET_BY_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def command(stage: Stage, stage_file: Path) -> list[str]:
    """One process for dp and for a script that starts its ranks itself, else torchrun; all end in boot.py."""
    boot = str(_HERE / "boot.py")
    if stage.mode == "dp" or stage.starts_ranks:
        return [sys.executable, boot, str(stage_file)]
    # --standalone: a free port, so two runs never meet; without restarts a failure stays a failure
    torchrun = ["--standalone", "--nproc-per-node", str(stage.world), "--max-restarts", "0"]
    log = ["--log-dir", str(Path(stage.run_folder) / "torchrun")]  # else a folder of its own stays in /tmp
    agent = str(_HERE / "agent.py")
    return [sys.executable, agent, stage.run_folder, *torchrun, *log, boot, str(stage_file)]


def environment() -> dict[str, str]:
    """The user's, with one thread a process where it names no number, in both modes alike.

    The number alone changes bits (docs/semantics.md#threads). Setting it also keeps torchrun from warning that it does.
    """
    outside_of_torchrun = {key: value for key, value in os.environ.items() if key not in SET_BY_TORCHRUN}
    return {"OMP_NUM_THREADS": "1", **outside_of_torchrun}
