"""Scripts written for DDP on CUDA run over gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dp2ddp.runtime.process.server import Server
from tests.ranks import run_program

from .conftest import Install


@pytest.mark.torchrun
def test_a_hand_written_cuda_script_trains_on_two_ranks(server: Server, tmp_path: Path) -> None:
    script = Path(__file__).with_name("hand_written_ddp.py")
    done = run_program(server, tmp_path, script, ranks=2)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank} | {fact}"
        for rank in (0, 1)
        for fact in (
            "average is the mean of the losses: True",
            f"devices: cuda:{rank} cuda:{rank} cuda:{rank} {rank} of 2",
            "parameters are equal: True",
        )
    ]


SPAWNING = """
from dp2ddp.runtime.virtual_cuda.virtual_devices import install
install(2)
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def main_worker(gpu, ngpus, file):
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=gpu, world_size=ngpus)
    total = torch.full((1,), gpu + 1.0, device="cuda")
    dist.all_reduce(total)
    print(f"{total.device} {total.item()}\\n", end="", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(main_worker, nprocs=torch.cuda.device_count(), args=(2, sys.argv[1]))
"""


@pytest.mark.torchrun
def test_spawned_ranks_have_devices_too(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(SPAWNING)
    command = [sys.executable, str(script), str(tmp_path / "meeting")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert sorted(done.stdout.splitlines()) == ["cuda:0 3.0", "cuda:1 3.0"], done.stderr


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl", None])
def test_nccl_becomes_gloo(virtual: Install, backend: Any) -> None:
    virtual(1)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.get_backend() == "gloo"
        assert dist.get_backend(dist.new_group(backend="nccl")) == "gloo"
        tensor = torch.full((2,), 3.0, device="cuda")
        work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True)
        assert work.wait()
        assert (tensor.tolist(), tensor.device.type) == ([3, 3], "cuda")
    finally:
        dist.destroy_process_group()
