"""What is trained outside of the wrapped model: each rank trains it, and all are kept alike."""

import functools
import weakref
from typing import Any, Dict, List

import torch

from .broadcast import exchange_numbers
from .ranks import together
from .replicas import share_tensors


def follow_optimizers() -> List[Any]:
    """The script's optimizers from now on, in the order in which they are made, the same on all ranks."""
    made: List[Any] = []
    init = torch.optim.Optimizer.__init__

    @functools.wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if together():
            made.append(weakref.ref(self))

    torch.optim.Optimizer.__init__ = remember  # type: ignore[method-assign]
    return made


OPTIMIZERS = follow_optimizers()


class Forwards:
    """Those with gradients."""

    count = 0


def keep_alike(module: torch.nn.Module) -> None:
    """At each twentieth forward, give rank 0's numbers of what is trained outside of a module to all ranks.

    Their gradients of it are the same, but some kernels on GPUs add in any order, and cudnn.benchmark may choose
    others on each rank: by what they round, ranks would drift apart.
    """
    if not together() or not torch.is_grad_enabled():
        return
    Forwards.count += 1
    if Forwards.count % 20 == 0 and OPTIMIZERS:
        there = [*zip(*exchange_numbers([optimizer() is not None for optimizer in OPTIMIZERS]))]
        groups = (
            group
            for each, is_there in zip(OPTIMIZERS, there)
            if all(is_there)
            for group in each().param_groups
        )
        trained: Dict[Any, None] = dict.fromkeys(each for group in groups for each in group["params"])
        own = {*module.parameters()}
        share_tensors([each for each in trained if each not in own])
