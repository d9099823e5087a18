"""DDP909: seeds that may be set more than once."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import LOOPS
from dp2ddp.codemod.small.rule import Finding, Rule, call_by


class SameSeedAgain(Rule):
    """Begin the replicas' random numbers anew with the script's.

    ## What it does
    `torch.manual_seed(seed)` in a function or a loop becomes `seed_all_streams(torch.manual_seed, seed)`.

    ## Why
    It seeds all devices. A rank knows its device's stream by its seed, and the same seed set again begins it anew.
    """

    code = "DDP909"
    name = "same-seed-again"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if does(call.name) is not Does.SEED:
                continue
            may_repeat = module.function_around(call.node) or any(
                isinstance(each, LOOPS) for each in module.around(call.node)
            )
            if may_repeat:
                yield call_by(call.node, "seed_all_streams", "replicas' streams begin anew, too")
