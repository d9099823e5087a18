"""DDP904: questions to a person."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import QUESTIONS
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class AsksAPerson(Rule):
    """Say where a script waits for a person.

    ## What it does
    A hazard for `input()`, `pdb.set_trace()`, `breakpoint()` and their like.

    ## Why
    Under torchrun nobody sits at the standard input of the ranks: the script would wait, or end with EOFError.

    ## Safety
    Nothing is changed.

    ## References
    IDIOMS: input() prompt or pdb, 3 of 95 repositories.
    """

    code = "DDP904"
    name = "asks-a-person"
    examples = (
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                if input("go on? ") == "n":
                    raise SystemExit
            """,
            message="input()",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nx = self.input(1)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for call in facts.script.calls_of(*QUESTIONS):
            name = (call.name or "").removeprefix("builtins.")
            yield Hazard(
                call.node, f"{name}() waits for a person", "make it an argument of the script, or take it out"
            )
