"""`torchrun all_reduce_program.py FOLDER`: ranks meet and add numbers, as training does, and say how far they came."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)

from dp2ddp.runtime.processes import die_with_parent

COUNT = 2**18  # numbers: a megabyte


def main() -> None:
    die_with_parent()
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
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


if __name__ == "__main__":
    main()
