"""Processes of the doctor's that import torch: `python torch_program.py` says what it knows, and as ranks,
`torchrun torch_program.py FOLDER`, they meet and add numbers."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)

from dp2ddp.runtime.processes import die_with_parent

COUNT = 2**18  # numbers: a megabyte


def add_numbers(folder: Path) -> None:
    """As one rank: meet the others, and add numbers, as training does; `folder` gets how far it came."""
    rank = int(os.environ["RANK"])
    status = folder / f"rank-{rank}"
    status.write_text("started, imports torch")
    import torch
    import torch.distributed as dist

    status.write_text("imported torch, waits for the other rank")
    on_gpus = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"]) and dist.is_nccl_available()
    if on_gpus:
        torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo", timeout=timedelta(minutes=5))
    seconds = {}
    for backend, device in [("gloo", "cpu"), *([("nccl", "cuda")] if on_gpus else [])]:
        status.write_text(f"joined, adds numbers by {backend}")
        numbers = torch.full((COUNT,), rank + 1.0, device=device)
        dist.all_reduce(numbers)
        if not bool((numbers == sum(range(1, dist.get_world_size() + 1))).all()):
            raise RuntimeError(f"{backend}: the sum over the ranks is wrong: {numbers[0].item()}")
        begin = time.perf_counter()
        dist.all_reduce(numbers)
        numbers.sum().item()
        seconds[backend] = time.perf_counter() - begin
    dist.barrier()
    dist.destroy_process_group()
    status.write_text(json.dumps(seconds))


def tell() -> None:
    """What torch knows of itself and of the GPUs, as JSON on stdout."""
    import torch
    import torch.distributed

    there = torch.distributed.is_available()
    nccl = there and torch.distributed.is_nccl_available()
    print(
        json.dumps(
            {
                "version": torch.__version__,
                "cuda": torch.version.cuda,
                "rocm": torch.version.hip,
                "available": torch.cuda.is_available(),
                "distributed": there,
                "gloo": there and torch.distributed.is_gloo_available(),
                "nccl": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,  # type: ignore[no-untyped-call]
                "devices": [device(index) for index in range(torch.cuda.device_count())],
                "peers": peers(torch.cuda.device_count()),
            }
        )
    )


def device(index: int) -> dict[str, Any]:
    """A GPU, and whether it can add two numbers."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    facts: dict[str, Any] = {
        "name": properties.name,
        "memory": properties.total_memory,
        "free": None,
        "error": None,
    }
    try:
        assert int(torch.ones(2, device=f"cuda:{index}").sum()) == 2
        facts["free"] = torch.cuda.mem_get_info(index)[0]
    except Exception as error:  # whatever CUDA says: it is the answer
        facts["error"] = str(error).partition("\n")[0]
    return facts


def peers(count: int) -> list[list[bool]]:
    """[i][j]: whether device i can read the memory of device j."""
    import torch

    return [[i == j or torch.cuda.can_device_access_peer(i, j) for j in range(count)] for i in range(count)]


if __name__ == "__main__":
    die_with_parent()
    if sys.argv[1:]:
        add_numbers(Path(sys.argv[1]))
    else:
        tell()
