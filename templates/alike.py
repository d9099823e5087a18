"""What is trained outside of the wrapped model: each rank trains it, and all are kept alike."""

import functools
import itertools
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
FORWARDS = itertools.count(1)  # with gradients


def keep_alike(module: torch.nn.Module) -> None:
    """At each twentieth forward, give rank 0's numbers of what is trained outside of a module to all ranks.

    Their gradients of it are the same, but some kernels on GPUs add in any order, and cudnn.benchmark may choose
    others on each rank: by what they round, ranks would drift apart.
    """
    if together() and torch.is_grad_enabled() and next(FORWARDS) % 20 == 0 and OPTIMIZERS:
        optimizers = [made() for made in OPTIMIZERS]
        there = zip(*exchange_numbers([each is not None for each in optimizers]))
        trained: Dict[Any, None] = {}
        for optimizer in itertools.compress(optimizers, map(all, there)):
            for group in optimizer.param_groups:
                trained.update(dict.fromkeys(group["params"]))
        own = {*module.parameters()}
        share_tensors([each for each in trained if each not in own])
