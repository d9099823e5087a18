"""DDP505: checkpoints that are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.pickled import may_hold_wrapper
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class TorchLoad(Rule):
    """Load checkpoints onto the rank's own device.

    ## What it does
    `torch.load(path)` stays as it is; the ranks join with `join_process_group(map_location=to_own_device)`, which
    holds for every load that is not told where to (torch.serialization.register_package). Where a whole model may be
    in the file (the result takes the wrapped model's name, or `weights_only=False`, and not all of it goes to
    `load_state_dict` or into numbers and texts), `load_for_ranks(path)` is called.

    ## Why
    A checkpoint saved on cuda:0 is loaded onto cuda:0, by every rank: the first GPU runs full. And a DataParallel that
    comes out of a file would spread over all GPUs, from every rank.

    ## Safety
    What was saved on the CPU stays there. A map_location that is given already is not touched. `load_for_ranks`
    changes nothing but DataParallel objects in what it loads: they become GraphDDP, which is right for any training.

    ## References
    docs/semantics.md#loading.
    """

    code = "DDP505"
    name = "torch-load"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                state = torch.load("best.pt", weights_only=False, map_location="cpu")
                teacher = state["net"].eval()
                net = torch.load("net.pt")
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                state = load_for_ranks("best.pt", weights_only=False, map_location="cpu")
                teacher = state["net"].eval()
                net = load_for_ranks("net.pt")
            """,
        ),
        Untouched('import torch\nnet = torch.nn.DataParallel(net)\nstate = torch.load("best.pt")'),
        Untouched(
            'import torch\nnet = torch.nn.DataParallel(net)\nstate = torch.load("best.pt", map_location="cpu")'
        ),
        Untouched("""
            import torch
            net = torch.nn.DataParallel(net)
            state = torch.load("best.pt", map_location="cpu", weights_only=False)
            net.load_state_dict(state["net"])
            first_epoch = state["epoch"] + 1
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for call in facts.script.calls_of("torch.load"):
            if may_hold_wrapper(facts.script, call, facts.all_wraps):
                why = "a DataParallel that is in the file comes back as the wrapper that ranks need"
                yield Replace(call.node.func, facts.names.helper("load_for_ranks"), why)
                yield Lift("load_for_ranks", why)
