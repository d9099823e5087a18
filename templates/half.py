"""Whether a model computes in float16, whose gradients must not grow on their way: times W they may be infinite."""

import functools
import sys
from typing import Any

import torch


class HalfPrecision:
    """Whether autocast has been entered with float16 in this process, be it inside of a forward."""

    seen = False


def notice_half_precision() -> None:
    """Let every autocast with float16 be noticed from now on."""
    autocast: Any = torch.amp.autocast_mode.autocast
    original = autocast.__enter__
    if hasattr(original, "notices_half"):
        return

    @functools.wraps(original)
    def enter(self: Any) -> Any:
        if self._enabled and getattr(self, "fast_dtype", torch.float16) == torch.float16:
            HalfPrecision.seen = True
        return original(self)

    vars(enter)["notices_half"] = True
    autocast.__enter__ = enter


def may_be_half(parameters: "list[torch.nn.Parameter]") -> bool:
    """Whether something may be computed in float16: by autocast, by apex, or as the parameters are."""
    return (
        HalfPrecision.seen
        or "apex.amp" in sys.modules
        or any(parameter.dtype == torch.float16 for parameter in parameters)
    )
