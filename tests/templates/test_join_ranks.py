"""Ranks that libraries know of: they join before the library does, which finds what torchrun gave it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import torchrun

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
def test_libraries_see_the_ranks(tmp_path: Path) -> None:
    ending = torchrun(program(tmp_path))

    assert ending.code == 0, ending.stderr[-2000:]
    first, second = (facts(tmp_path, rank) for rank in "01")
    assert first == {"visible": True, "world": "2", "drawn": first["drawn"], "pid": True, "sum": 1.5}
    assert second == {**first, "pid": False}  # the random numbers of rank 0, whatever each rank had seeded
    assert ending.stdout.split() == ["trained"]
    assert (tmp_path / "made").is_dir()


def test_without_torchrun_nothing_changes(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    run = subprocess.run(
        [sys.executable, program(tmp_path)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert (run.stdout, run.stderr) == ("trained\n", "")
    assert facts(tmp_path) == {
        "visible": False,
        "world": None,
        "drawn": 0.32383276483316237,
        "pid": True,
        "sum": None,
    }
