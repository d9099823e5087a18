"""What is trained outside of the wrapped model: each rank trains it, and all are kept alike."""

import functools
import itertools
import weakref
from typing import Any, Dict, List

import torch

from .broadcast import Rank, exchange_numbers
from .ranks import together
from .replicas import share_tensors

OPTIMIZERS: List[Any] = []  # the script's, in the order in which they are made, the same on all ranks
FORWARDS = itertools.count(1)  # with gradients


def keep_ranks_alike() -> None:
    """From now on, rank 0's numbers of what is trained outside of the wrapped model go to all ranks, now and then.

    Each rank trains it by the same gradients, but some kernels on GPUs add in any order, and cudnn.benchmark may choose
    others on each rank: by what they round, ranks would drift apart.
    """
    init = torch.optim.Optimizer.__init__

    @functools.wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if together():
            OPTIMIZERS.append(weakref.ref(self))

    torch.optim.Optimizer.__init__ = remember  # type: ignore[method-assign]
    Rank.before_forward = share_trained


def share_trained(module: torch.nn.Module) -> None:
    """At each twentieth forward: what optimizers have that is not of the module."""
    if together() and torch.is_grad_enabled() and next(FORWARDS) % 20 == 0 and OPTIMIZERS:
        optimizers = [made() for made in OPTIMIZERS]
        there = zip(*exchange_numbers([each is not None for each in optimizers]))
        trained: Dict[Any, None] = {}
        for optimizer in itertools.compress(optimizers, map(all, there)):
            for group in optimizer.param_groups:
                trained.update(dict.fromkeys(group["params"]))
        own = {*module.parameters()}
        share_tensors([each for each in trained if each not in own])
