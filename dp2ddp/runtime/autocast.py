"""torch.autocast("cuda") on virtual devices: the state that programs ask for is CUDA's, the casting the
CPU's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.autocast_mode import autocast

from .patches import Patches

_BEFORE = "_dp2ddp_before"


def map_autocast_to_cpu(patches: Patches) -> None:
    """Enter the CPU's autocast with CUDA's switch and dtype.

    Both states are per thread in torch, so that DataParallel's threads know the switch but not the dtype:
    bfloat16 around a wrapped model is float16 inside (docs/semantics.md#autocast-dtype), here as there.
    """
    enter, leave = autocast.__enter__, autocast.__exit__

    def __enter__(self: autocast) -> Any:
        result = enter(self)  # type: ignore[no-untyped-call]
        if self.device == "cuda":
            before = getattr(self, _BEFORE, [])
            before.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            setattr(self, _BEFORE, before)
            _switch_cpu(torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
        return result

    def __exit__(self: autocast, *exc_info: Any) -> Any:
        if self.device == "cuda":
            _switch_cpu(*getattr(self, _BEFORE).pop())
        return leave(self, *exc_info)

    patches.set(autocast, "__enter__", __enter__)
    patches.set(autocast, "__exit__", __exit__)


def _switch_cpu(enabled: bool, dtype: torch.dtype) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)
