"""How each mode is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.runtime.process.launch_command import command, environment
from dp2ddp.runtime.stage import Stage

DP = Stage(script="/s/train.py", mode="dp", world=3, folder="/s", run_folder="/run", name="train.py")
DDP = Stage(script="/s/train.py", mode="ddp", world=3, folder="/s", run_folder="/run", name="train.py")


def test_dataparallel_is_one_process_and_ddp_is_torchrun() -> None:
    assert command(DP, Path("/run/stage.json"))[1:] == [command(DP, Path("x"))[1], "/run/stage.json"]
    assert "--standalone --nproc-per-node 3" in " ".join(command(DDP, Path("/run/stage.json")))


def test_what_torchrun_leaves_lies_in_the_run_folder() -> None:
    words = command(DDP, Path("/run/stage.json"))
    assert words[words.index("--log-dir") + 1] == "/run/torchrun"
    assert words.index("--log-dir") < words.index("/run/stage.json") - 1  # torchrun's own argument


def test_both_have_one_thread_a_process_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert environment()["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert environment()["OMP_NUM_THREADS"] == "4"


def test_ranks_of_a_torchrun_around_us_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    assert "RANK" not in environment()


def test_a_stage_survives_the_way_to_its_ranks() -> None:
    assert Stage.from_json(DDP.to_json()) == DDP
    assert list(DP.ranks) == [0]
    assert list(DDP.ranks) == [0, 1, 2]
