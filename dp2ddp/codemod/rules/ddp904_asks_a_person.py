"""DDP904: questions to a person."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Lift, Note, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import DEBUGGERS, QUESTIONS
from dp2ddp.codemod.facts.own_mode import is_guarded
from dp2ddp.codemod.meeting_places import only_in_main_flow
from dp2ddp.codemod.rule import Flags, Notes, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class AsksAPerson(Rule):
    """Ask a person once, and say where a debugger waits for one.

    ## What it does
    `input("go on? ")` becomes `on_rank_zero(input, "go on? ")`: rank 0 asks, all ranks get the answer. A hazard for
    `pdb.set_trace()`, `breakpoint()` and their like; a note where a condition stands before them.

    ## Why
    All ranks have the terminal of torchrun: each would take a part of what is typed. A debugger stops one rank,
    and the others wait for it without a prompt of their own.

    ## Safety
    Where nobody sits at the terminal, `input` ends with EOFError, on every rank, as it did before.

    ## References
    docs/idioms.md#files-logs-devices-processes.
    """

    code = "DDP904"
    name = "asks-a-person"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                if input("go on? ") == "n":
                    raise SystemExit
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                if on_rank_zero(input, "go on? ") == "n":
                    raise SystemExit
            """,
        ),
        Flags(
            before="""
                import pdb
                import torch
                net = torch.nn.DataParallel(net)
                pdb.set_trace()
            """,
            message="pdb.set_trace()",
        ),
        Notes(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                if args.debug:
                    breakpoint()
            """,
            message="debug the original",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nx = self.input(1)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "a person is asked once, by rank 0; every rank gets the answer"
        for call in facts.script.calls_of(*QUESTIONS):
            hazard = only_in_main_flow(facts, call.node, f"{_shown(call.name)}()")
            if hazard:
                yield hazard
            else:
                yield PassTo(call.node, facts.names.helper(strategy.helper("answer_of_rank_zero")), because)
                yield Lift(strategy.helper("answer_of_rank_zero"), because)
        for call in facts.script.calls_of(*DEBUGGERS):
            if is_guarded(facts.modules, facts.script, call.node):
                text = f"{_shown(call.name)}() would stop every rank, without a prompt for most: debug the original"
                yield Note(call.node, text)
            else:
                yield Hazard(call.node, f"{_shown(call.name)}() waits for a person", "take it out")


def _shown(name: str | None) -> str:
    return (name or "").removeprefix("builtins.")
