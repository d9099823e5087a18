"""DDP502: checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.codemod.whereabouts import only_in_main_flow


class TorchSave(Rule):
    """Save checkpoints once.

    ## What it does
    `torch.save(...)` becomes `save_on_rank_zero(...)`, with the same arguments.

    ## Why
    When every rank saves to one path and loads from it, 88 of 120 loads failed and 19 gave a mixture of two ranks.

    ## Safety
    Rank 0 writes to a temporary name and moves the file into place; the others wait until it is there. The
    content is the same, `module.` keys included.

    ## References
    SEMANTICS 47, 76.
    """

    code = "DDP502"
    name = "torch-save"
    examples = (
        Rewrites(
            before='import torch\nnet = torch.nn.DataParallel(net)\ntorch.save(net.state_dict(), "best.pt")',
            after='import torch\nnet = torch.nn.DataParallel(net)\nsave_on_rank_zero(net.state_dict(), "best.pt")',
        ),
        Flags(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        torch.save(x, "x.pt")
                        return x
                net = torch.nn.DataParallel(Net())
            """,
            message="in the forward of a model",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nself.save(net)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "one run saves once: rank 0 does, and the others wait for it"
        for effect in facts.effects:
            if effect.kind != "save":
                continue
            hazard = only_in_main_flow(facts, effect.call.node, "torch.save()")
            if hazard:
                yield hazard
            else:
                yield Replace(effect.call.node.func, facts.names.helper("save_on_rank_zero"), because)
                yield Lift("save_on_rank_zero", because)
