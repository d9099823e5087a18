"""Ranks that libraries know of: they join before the library does, which finds what torchrun gave it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.runtime.process.server import Server
from tests.ranks import run_program

PROGRAM = """
import json, os, random, sys
import torch
import torch.distributed as dist
from dp2ddp.templates.rank0 import ask_rank0, run_on_rank0
from dp2ddp.templates.ranks import join_ranks
random.seed(int(os.environ.get("RANK", 7)))
join_ranks()
join_ranks()
run_on_rank0(os.mkdir, "made")
facts = {
    "visible": dist.is_initialized(), "world": os.environ.get("WORLD_SIZE"), "drawn": random.random(),
    "pid": ask_rank0(os.getpid) == os.getpid(), "sum": None,
}
if dist.is_initialized():  # as DistributedDataParallel and accelerate do
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    wrapped(torch.full((1, 1), dist.get_rank() + 1.0)).sum().backward()
    facts["sum"] = wrapped.module.weight.grad.item()
print("trained")
with open(f"facts{os.environ.get('RANK', '')}.json", "w") as file:
    json.dump(facts, file)
"""


def program(folder: Path) -> Path:
    script = folder / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    return script


def facts(folder: Path, rank: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"facts{rank}.json").read_text())
    return found


@pytest.mark.torchrun
def test_libraries_see_the_ranks(tmp_path: Path, server: Server) -> None:
    run = run_program(server, tmp_path, program(tmp_path), ranks=2)

    assert run.returncode == 0, run.stderr[-2000:]
    first, second = (facts(tmp_path, rank) for rank in "01")
    assert first == {"visible": True, "world": "2", "drawn": first["drawn"], "pid": True, "sum": 1.5}
    assert second == {**first, "pid": False}  # the random numbers of rank 0, whatever each rank had seeded
    assert run.stdout.split() == ["trained"]
    assert (tmp_path / "made").is_dir()


def test_without_torchrun_nothing_changes(tmp_path: Path, server: Server) -> None:
    run = run_program(server, tmp_path, program(tmp_path))

    assert (run.stdout, run.stderr) == ("trained\n", "")
    assert facts(tmp_path) == {
        "visible": False,
        "world": None,
        "drawn": 0.32383276483316237,
        "pid": True,
        "sum": None,
    }
