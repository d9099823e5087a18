"""DDP901: scripts that are distributed already."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import distributed_already
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class AlreadyDistributed(Rule):
    """Say that a script runs as several processes already.

    ## What it does
    A hazard where the script calls `init_process_group` or wraps a model in DistributedDataParallel.

    ## Why
    Two ways of being several processes would get into each other's way: ranks, devices and samplers are set up twice.

    ## Safety
    Nothing of that part is changed. Scripts that dp2ddp has converted are not meant.

    ## References
    IDIOMS: "has a DDP branch beside DP", 8 of 95 repositories.
    """

    code = "DDP901"
    name = "already-distributed"
    examples = (
        Flags(
            before="""
                import torch
                import torch.distributed as dist
                if args.distributed:
                    dist.init_process_group("nccl")
                else:
                    net = torch.nn.DataParallel(net)
            """,
            message="several processes",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        node = None if facts.is_converted else distributed_already(facts.script)
        if node is not None:
            yield Hazard(
                node,
                "this script can run as several processes already",
                "start it in its own distributed mode; or take that branch out and convert again",
            )
