"""DDP711: decisions by a number that each rank has of its own."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.idiomatic.local import local_decisions
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class LocalDecision(Rule):
    """Say where ranks would decide by their own losses.

    ## What it does
    A hazard where a loss, an output or a count of a training loop decides whether a step is taken, a loop ends or a
    learning rate changes. Decisions by evaluations are well: every rank evaluates on all samples.

    ## Why
    A rank's loss is that of its own samples. One rank would leave the loop, and the others wait for it for ever; or
    they would go on with other learning rates.

    ## Safety
    Followed by names, into functions and out of them; what is printed or saved alone is no decision.

    ## References
    docs/causes.md, local-decision; docs/idiomatic.md.
    """

    code = "DDP711"
    name = "idiomatic-local-decision"
    nodes = ("Call",)
    examples = (
        Flags(
            before="""
                import torch
                from torch.utils.data import DataLoader
                net = torch.nn.DataParallel(net)
                loader = DataLoader(data, batch_size=64)
                for x, y in loader:
                    loss = criterion(net(x), y)
                    if torch.isnan(loss):
                        continue
                    loss.backward()
            """,
            message="torch.isnan(loss)",
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader
            net = torch.nn.DataParallel(net)
            loader = DataLoader(data, batch_size=64)
            for x, y in loader:
                loss = criterion(net(x), y)
                loss.backward()
            if test(net) > best:
                scheduler.step()
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        for node in local_decisions(facts):
            if facts.modules.home.get(node) is facts.script:
                text = " ".join(facts.script.text_of(node).split())
                yield Hazard(
                    node,
                    f"`{text[:60]}` decides by a number of the rank's own samples: ranks would part, or wait for ever",
                    "reduce the number over the ranks first (dist.all_reduce), or take the exact style",
                )
