"""A script that goes on behind errors in backward, of a rank or of all: torchrun errors_program.py FAILING ..."""

from __future__ import annotations

import sys
from typing import Any

import torch
from dp2ddp.templates.meeting import Backward, WholeBatchSharingErrors
from dp2ddp.templates.rank0 import run_on_rank0
from dp2ddp.templates.ranks import init_distributed, own_rank
from torch import nn
from torch.utils.checkpoint import checkpoint


class Failing(torch.autograd.Function):
    """A layer whose backward runs out of memory, at its last row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, fails: bool) -> torch.Tensor:
        ctx.fails = fails
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if ctx.fails:
            raise RuntimeError("out of memory")
        return gradient, None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.fails = False

    def forward(self, x: torch.Tensor) -> Any:
        hidden = checkpoint(self.first, x, use_reentrant=False)
        hidden = Failing.apply(hidden, self.fails)
        return self.last(hidden), hidden.sum(1)


init_distributed()
Backward.timeout = 2
module = Net()
net = WholeBatchSharingErrors(module)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(6):
    module.fails = step in (2, 3) and str(own_rank()) in sys.argv[1:]
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    try:
        scores, sums = net(x)
        (slope,) = torch.autograd.grad(scores.sum(), module.last.weight, retain_graph=True, create_graph=True)
        (scores.pow(2).mean() + sums.mean() + slope.pow(2).mean()).backward()
        optimizer.step()
    except RuntimeError as error:
        run_on_rank0(print, step, error)
print(f"{sum(p.double().sum() for p in net.parameters()):.6f}")
