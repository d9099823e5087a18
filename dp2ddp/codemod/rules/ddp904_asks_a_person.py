"""Say where a debugger waits for a person.

A hazard for `pdb.set_trace()`, `breakpoint()` and their like; a note where a condition stands before them.

A debugger stops one rank, and the others wait for it without a prompt of their own.

`input()` is no hazard: rank 0 asks, and all ranks get the answer.

docs/effects.md#hazards-that-stay.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.own_mode import is_guarded
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags, notes

WAITS = Reason("debugger", "{name}() waits for a person", "take it out")
STOPS = Reason(
    "debugger-behind-condition",
    "{name}() would stop every rank, without a prompt for most: debug the original",
)


class AsksAPerson(Rule):
    nodes = ("Call",)
    examples = (
        flags("""
            # pdb.set_trace()
            import pdb
            import torch
            net = torch.nn.DataParallel(net)
            pdb.set_trace()
        """),
        notes("""
            # debug the original
            import torch
            net = torch.nn.DataParallel(net)
            if args.debug:
                breakpoint()
        """),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nx = self.input(1)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if does(call.name) is not Does.ASK_PERSON:
                continue
            name = (call.name or "").removeprefix("builtins.")
            if is_guarded(module, call.node):
                yield Note(call.node, STOPS.of(name=name))
            else:
                yield Hazard(call.node, WAITS.of(name=name))
