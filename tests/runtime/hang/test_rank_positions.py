"""What is said of ranks that can no longer be asked."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import psutil
import pytest

from dp2ddp.runtime.hang.collectives import CallRing
from dp2ddp.runtime.hang.rank_positions import ask_positions
from dp2ddp.runtime.run_folder import RankStatus, write_status
from dp2ddp.runtime.stage import Stage

STAGE = Stage(
    script="train_ddp.py",
    mode="ddp",
    world=2,
    folder="/folder",
    run_folder="/run",
    name="train_ddp.py",
    seed=1,
    real=False,
    capture=True,
)


def test_a_rank_that_ends_while_it_is_asked_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = subprocess.Popen(["true"])
    over.wait()
    write_status(tmp_path, 0, RankStatus(over.pid))
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: True)  # a moment ago
    (position,) = ask_positions(dataclasses.replace(STAGE, mode="dp", run_folder=str(tmp_path)))
    assert position.ended == "is gone: a signal ended it (out of memory?)"


def test_a_rank_that_a_signal_ended_was_last_heard_of_at_a_call(tmp_path: Path) -> None:
    over = subprocess.Popen(["true"])
    over.wait()
    for rank in range(2):
        write_status(tmp_path, rank, RankStatus(over.pid))
    CallRing(tmp_path, 0).add("all_reduce", "float32 4", "", "train_ddp.py:88")
    stage = dataclasses.replace(STAGE, run_folder=str(tmp_path))
    gone = "is gone: a signal ended it (out of memory?)"
    assert [position.ended for position in ask_positions(stage)] == [
        f"{gone}; its last call that other ranks join was all_reduce of float32 4 at train_ddp.py:88",
        gone,
    ]
