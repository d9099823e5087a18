"""DDP505: checkpoints that are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, SetArgument
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class TorchLoad(Rule):
    """Load checkpoints onto the rank's own device.

    ## What it does
    Gives `torch.load(path)` a `map_location=to_own_device`.

    ## Why
    A checkpoint saved on cuda:0 is loaded onto cuda:0, by every rank: the first GPU runs full.

    ## Safety
    What was saved on the CPU stays there. A map_location that is given already is not touched.

    ## References
    SEMANTICS 77.
    """

    code = "DDP505"
    name = "torch-load"
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                state = torch.load("best.pt")
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                state = torch.load("best.pt", map_location=to_own_device)
            """,
        ),
        Untouched(
            'import torch\nnet = torch.nn.DataParallel(net)\nstate = torch.load("best.pt", map_location="cpu")'
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "what was saved on the first GPU comes to the rank's own"
        for call in facts.script.calls_of("torch.load"):
            if call.argument(1, "map_location") is None and all(
                keyword.arg for keyword in call.node.keywords
            ):
                yield SetArgument(call.node, "map_location", facts.names.helper("to_own_device"), because)
                yield Lift("to_own_device", because)
