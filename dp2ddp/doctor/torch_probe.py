"""`python torch_probe.py`: what torch knows of itself and of the GPUs, as JSON on stdout. In a process of its own."""

from __future__ import annotations

import json
import sys
from typing import Any

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)

from dp2ddp.runtime.processes import die_with_parent


def main() -> None:
    die_with_parent()
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
    main()
