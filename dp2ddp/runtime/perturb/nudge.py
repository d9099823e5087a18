"""A run whose parameters are moved by one ulp, again and again: what rounding alone makes of a training.

A right port computes the same sums in another order, so each of its steps ends about an ulp away. This does that to
DataParallel itself. Parameters are moved and not inputs: an input may be a mask, an index in floating point or stand
exactly at a threshold, where an ulp changes what is computed; parameters are numbers of no special value. They are
multiplied by 1 + ulp or 1 - ulp, so zeros stay zeros (pruned weights, fresh biases).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.optim import optimizer as optimizers

from dp2ddp.taps import Taps
from dp2ddp.trace.tensors import as_real

# where the function is held: in torch.nn.parallel some of these names are functions
_REPLICATE = [sys.modules[f"torch.nn.parallel{name}"] for name in (".replicate", ".data_parallel", "")]
_SEED = 1  # of the directions; the script's own streams are left alone


def install_nudge(taps: Taps) -> None:
    """Move the parameters of a model before it is replicated, or run on one device, for the first time, and each
    optimizer's after each step."""
    nudge = _Nudge()
    taps.before("forward", nudge.move_wrapped, torch.nn.DataParallel)
    taps.before("replicate", nudge.move_new, *_REPLICATE)
    handle = optimizers.register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: nudge.move(_stepped(optimizer))
    )
    taps.on_undo(handle.remove)


def _stepped(optimizer: Any) -> list[torch.Tensor]:
    """A parameter without a gradient was not computed anew, and cannot have been rounded."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return [parameter for parameter in parameters if parameter.grad is not None]


class _Nudge:
    """The parameters that were moved once at least, and a direction for each of their elements."""

    def __init__(self) -> None:
        self._moved: set[int] = set()
        self._directions = np.random.Generator(np.random.PCG64(_SEED))

    def move_wrapped(self, wrapper: Any, /, *inputs: Any, **kwargs: Any) -> None:
        self.move_new(wrapper.module)

    def move_new(self, network: torch.nn.Module, *devices: Any, **options: Any) -> None:
        self.move(each for each in network.parameters() if id(each) not in self._moved)

    def move(self, parameters: Iterable[torch.Tensor]) -> None:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for parameter in parameters:
                if parameter.requires_grad:  # a float, or complex: then both parts
                    self._moved.add(id(parameter))
                    self._move(as_real(parameter.data))

    def _move(self, values: torch.Tensor) -> None:
        """By one ulp, or by two where that rounds so; up or down, by chance but the same in every run."""
        count = values.numel()
        bits = np.unpackbits(np.frombuffer(self._directions.bytes((count + 7) // 8), np.uint8))[:count]
        signs = torch.tensor(bits, dtype=values.dtype).mul_(2).sub_(1)
        values.mul_(signs.mul_(torch.finfo(values.dtype).eps).add_(1).reshape(values.shape))
