"""DDP101: where the ranks join."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard, InsertBefore
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.rule import Change, Finding, Rule
from dp2ddp.codemod.small.start import first_act


class Start(Rule):
    """Join the ranks before the script does anything.

    ## What it does
    `init_distributed()` comes before the first statement that does more than define.

    ## Why
    What is done before, every rank does by itself: prints, random numbers, files.
    """

    code = "DDP101"
    name = "start"
    nodes = ("Module",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        if module is not module.program.entry or not module.tree.body:
            return
        act = first_act(module)
        if act is None:
            yield Hazard(
                module.tree.body[0],
                "nothing is run here: where do the ranks begin?",
                "convert the script that is started",
            )
        else:
            edit = InsertBefore(act, "init_distributed()", "each rank joins here, before anything is done")
            yield Change(edit, ("init_distributed",))
