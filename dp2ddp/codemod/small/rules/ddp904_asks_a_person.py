"""DDP904: debuggers."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.rule import Finding, Rule


class AsksAPerson(Rule):
    """Take debuggers out.

    ## What it does
    A hazard for `breakpoint()` and its like.

    ## Why
    A rank that waits for a person lets all others wait.
    """

    code = "DDP904"
    name = "asks-a-person"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if does(call.name) is Does.ASK_PERSON:
                yield Hazard(call.node, f"{call.name}: a debugger waits for one rank", "take it out")
