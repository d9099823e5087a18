"""DDP906: threads and processes of the script's own."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.rule import Finding, Rule


class OwnProcesses(Rule):
    """Look at threads and processes of the script.

    ## What it does
    A hazard where they are started.

    ## Why
    They hand over in an order of their own, another one on each rank.
    """

    code = "DDP906"
    name = "own-processes"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if does(call.name) is Does.HAND_OVER:
                yield Hazard(
                    call.node,
                    f"{call.name}: threads and processes of the script hand over in an order of their own",
                    "feed the main flow by a DataLoader with workers, or accept it where nothing comes back",
                )
