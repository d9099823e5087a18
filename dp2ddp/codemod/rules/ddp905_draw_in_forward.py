"""DDP905: host random numbers inside a forward."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.randomness import draws_in_backward, host_draws_in_forward, is_remembered
from dp2ddp.codemod.rule import Flags, Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class DrawInForward(Rule):
    """Say where a forward draws from a stream of the host.

    ## What it does
    A note for draws of `random`, `numpy.random`, and of torch on the CPU (`torch.randn(size).cuda()`) inside the
    forward of a module; the wrapper is `InTurnDDP`. A hazard where DataParallel is subclassed, handed on or taken
    apart.

    A hazard for draws in a function under `functools.lru_cache`, whose memory cannot be told from rank to rank.

    A hazard for draws in the backward of a torch.autograd.Function (shake-shake): a rank has its device's stream
    only while its replica runs forward.

    ## Why
    DataParallel's replicas draw from one stream in threads, in any order: two runs of the original are not
    alike either. With `InTurnDDP` the ranks run their replicas one after another, and draw in the order of the rows.

    ## Safety
    Draws on the device (dropout, torch.rand on the input's device) need no turns: each device has a stream of its own.
    A model of a library that draws on the host is noticed when it runs, and raises.

    ## References
    docs/semantics.md#device-streams, docs/semantics.md#host-draws.
    """

    code = "DDP905"
    name = "draw-in-forward"
    nodes = ("Call",)
    examples = (
        Notes(
            before="""
                import random
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x * self.factor()
                    def factor(self):
                        return random.random()
                net = torch.nn.DataParallel(Net())
            """,
            message="random.random()",
        ),
        Notes(
            before="""
                import numpy as np
                import torch
                class Net(torch.nn.Module):
                    def __init__(self):
                        self.rng = np.random.RandomState(0)
                    def forward(self, x):
                        return x * self.rng.rand()
                net = torch.nn.DataParallel(Net())
            """,
            message=".rand() draws on the host",
        ),
        Flags(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x + torch.zeros(x.size()).normal_().cuda()
                net = torch.nn.parallel.data_parallel(Net(), x)
            """,
            message="draw with torch",
        ),
        Flags(
            before="""
                import torch
                class Shake(torch.autograd.Function):
                    @staticmethod
                    def forward(ctx, x):
                        return x * torch.rand_like(x)
                    @staticmethod
                    def backward(ctx, grad):
                        return grad * grad.new(grad.shape).uniform_(0, 1)
                net = torch.nn.DataParallel(Net())
            """,
            message="drawn in a backward",
        ),
        Flags(
            before="""
                import functools
                import torch
                @functools.lru_cache(maxsize=None)
                def mask(n):
                    return torch.rand(n)
                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x * mask(x.shape[1]).to(x.device)
                net = torch.nn.DataParallel(Net())
            """,
            message="drawn once, and kept by functools",
        ),
        Untouched("""
            import random
            import torch
            class Net(torch.nn.Module):
                def forward(self, x):
                    return torch.dropout(x, 0.5, True)
            net = torch.nn.DataParallel(Net())
            scale = random.random()
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for call in draws_in_backward(facts.script):
            yield Hazard(
                call.node,
                f"{call.name or f'.{call.method}'}() is drawn in a backward, where each device has a stream of its own",
                "draw it in the forward, and keep it with ctx.save_for_backward",
            )
        for call in host_draws_in_forward(facts.script, facts.places):
            name = call.name or f".{call.method}"
            if is_remembered(facts.script, call.node):
                yield Hazard(
                    call.node,
                    f"{name}() is drawn once, and kept by functools: a rank would draw and keep its own",
                    "draw it in __init__, as a buffer of the module",
                )
            elif not facts.can_keep_rank_order:
                yield Hazard(
                    call.node,
                    f"{name}() is drawn inside a forward, where DataParallel itself draws in any order",
                    "draw with torch on the input's device, or outside of the model and pass it in",
                )
            else:
                yield Note(
                    call.node,
                    f"{name}() draws on the host: ranks take turns (faster: draw on the input's device)",
                )
