"""DDP909: seeds that may be set more than once."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import LOOPS
from dp2ddp.codemod.rule import Finding, Rule, Untouched, call_by, diff

PLAIN = "torch.manual_seed"  # ranks see by themselves that it has been called with another seed


class SameSeedAgain(Rule):
    """Begin the replicas' random numbers anew with the script's.

    ## What it does
    `torch.manual_seed(seed)` in a function or a loop becomes `seed_all_streams(torch.manual_seed, seed)`, and so does
    `torch.cuda.manual_seed_all(seed)` anywhere.

    ## Why
    It seeds all devices. A rank knows its device's stream by its seed, and the same seed set again begins it anew.

    ## Safety
    A seed that is set once, at the beginning, is seen by itself.

    ## References
    docs/semantics.md#device-streams.
    """

    code = "DDP909"
    name = "same-seed-again"
    nodes = ("Call",)
    examples = (
        diff("""
              import torch
              net = torch.nn.DataParallel(net)
              def set_seed(seed):
            -     torch.manual_seed(seed)
            +     seed_all_streams(torch.manual_seed, seed)
              for epoch in range(3):
                  set_seed(epoch)
        """),
        Untouched("""
            import torch
            net = torch.nn.DataParallel(net)
            torch.manual_seed(0)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if does(call.name) is Does.SEED and (call.name != PLAIN or _may_repeat(module, call)):
                yield call_by(call.node, "seed_all_streams", "replicas' streams begin anew, too")


def _may_repeat(module: Module, call: Call) -> bool:
    around = module.around(call.node)
    return module.function_around(call.node) is not None or any(isinstance(each, LOOPS) for each in around)
