"""DDP506: names and decisions that come from a clock, a process id or a fresh identifier."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.clocks import shared_clocks
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class OwnClock(Rule):
    """Use rank 0's clock where names, seeds or decisions come from it.

    ## What it does
    `time.strftime("%H%M")`, `datetime.now()`, `uuid.uuid4()`, `os.getpid()` are asked on rank 0 and sent to
    all. `time.time()` too, where its value makes a name or a seed, or where a condition depends on it.

    ## Why
    Every rank has its own clock: one would save under another name, or leave the loop a step before the others,
    which then wait for ever.

    ## Safety
    A clock whose time ends in lines that rank 0 alone shows or writes is left alone: it may differ, also beside
    another clock that decides. It is followed into functions and objects of the project (meters, timers, bars) and
    out of them, and conditions may pick its words (`if hours > 0: text += "h"`). What is given to a function that
    is not known counts as deciding.

    ## References
    docs/semantics.md#clocks.
    """

    code = "DDP506"
    name = "own-clock"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import time
                import torch
                net = torch.nn.DataParallel(net)
                train("runs/" + time.strftime("%H%M"))
                start = time.time()
                while time.time() - start < 60:
                    step()
            """,
            after="""
                import time
                import torch
                net = torch.nn.DataParallel(net)
                train("runs/" + on_rank_zero(time.strftime, "%H%M"))
                start = on_rank_zero(time.time)
                while on_rank_zero(time.time) - start < 60:
                    step()
            """,
        ),
        Flags(
            before="""
                import time
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        self.name = time.strftime("%H%M")
                        return x
                net = torch.nn.DataParallel(Net())
                report(net.module.name)
            """,
            message="differs from rank to rank",
        ),
        Flags(
            before="""
                import hydra
                import torch
                @hydra.main(config_path="conf")
                def main(config):
                    net = torch.nn.DataParallel(Net())
            """,
            message="hydra.main()",
        ),
        Untouched("""
            import time
            import torch
            net = torch.nn.DataParallel(net)
            start = time.time()
            print("took", time.time() - start)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "one clock for all ranks: names and decisions come from it"
        for call in shared_clocks(facts.script, facts.modules):
            if facts.places.of(call.node) is ExecutionPlace.MAIN:
                yield PassTo(call.node, facts.names.helper(strategy.helper("answer_of_rank_zero")), because)
                yield Lift(strategy.helper("answer_of_rank_zero"), because)
            elif not facts.is_of_rank_zero(call, strategy.shares):
                name = ast.unparse(call.node.func)
                yield Hazard(
                    call.node, f"{name}() differs from rank to rank", "take it before the loop and pass it in"
                )
        yield from _hydra(facts)


def _hydra(facts: Facts) -> Iterator[Finding]:
    """Hydra names and enters a folder by the clock, before the first line of main runs."""
    for call in facts.script.calls_of("hydra.main"):
        yield Hazard(
            call.node,
            "hydra.main() makes a folder by the clock of every rank",
            "give it a fixed folder (hydra.run.dir=...), then silence this line",
        )
