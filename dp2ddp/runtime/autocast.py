"""torch.autocast("cuda") on virtual devices: the state that programs ask for is CUDA's, the casting the
CPU's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.autocast_mode import autocast

from dp2ddp.taps import Taps

_BEFORE = "_dp2ddp_before"


def map_autocast_to_cpu(taps: Taps) -> None:
    """Enter the CPU's autocast with CUDA's switch and dtype.

    Both states are per thread in torch, so that DataParallel's threads know the switch but not the dtype:
    bfloat16 around a wrapped model is float16 inside (docs/semantics.md#autocast-dtype), here as there.
    """

    def enter(result: Any, context: autocast) -> None:
        if context.device == "cuda":
            before = getattr(context, _BEFORE, [])
            before.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            setattr(context, _BEFORE, before)
            _switch_cpu(torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))

    def leave(context: autocast, *exc_info: Any) -> None:
        if context.device == "cuda":
            _switch_cpu(*getattr(context, _BEFORE).pop())

    taps.after("__enter__", enter, autocast)
    taps.before("__exit__", leave, autocast)


def _switch_cpu(enabled: bool, dtype: torch.dtype) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)
