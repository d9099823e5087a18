"""DDP901: scripts that run as several processes already."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import CONDITIONS, is_main_guard
from dp2ddp.codemod.small.rule import Finding, Rule


class AlreadyDistributed(Rule):
    """Look at a script that starts a distributed mode of its own.

    ## What it does
    A hazard where the script makes a process group, whatever it is asked for.

    ## Why
    Two process groups in one process are one too many.
    """

    code = "DDP901"
    name = "already-distributed"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            is_conditional = any(
                isinstance(each, CONDITIONS) and not is_main_guard(each) for each in module.around(call.node)
            )
            if (
                does(call.name) is Does.DISTRIBUTE
                and not is_conditional
                and module.function_around(call.node) is None
            ):
                yield Hazard(
                    call.node,
                    f"this script runs as several processes already ({call.name})",
                    "convert its DataParallel mode alone: put the other one behind an option",
                )
