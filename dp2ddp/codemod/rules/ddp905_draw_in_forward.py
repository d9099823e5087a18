"""DDP905: host random numbers inside a forward."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.randomness import host_draws_in_forward
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class DrawInForward(Rule):
    """Say where a forward draws from a stream of the host.

    ## What it does
    A hazard for draws of `random` and `numpy.random` inside the forward of a module.

    ## Why
    DataParallel's replicas draw from one stream in threads, in any order: two runs of the original are not
    alike either. Ranks would all draw the same numbers, and a rank without rows would draw none.

    ## Safety
    Draws of torch (dropout, torch.rand) are no hazard: each rank has a stream of its own for its model.

    ## References
    SEMANTICS 63, 64.
    """

    code = "DDP905"
    name = "draw-in-forward"
    examples = (
        Flags(
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
        for call in host_draws_in_forward(facts.script, facts.places):
            yield Hazard(
                call.node,
                f"{call.name}() is drawn inside a forward, where DataParallel itself draws in any order",
                "draw with torch (torch.rand on the input's device), or outside of the model and pass it in",
            )
