"""DDP902: DataParallel, done by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import calls_by_hand, foreign_wraps, subclasses
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class HandMadeParallel(Rule):
    """Say that a script does DataParallel's work by hand.

    ## What it does
    A hazard for subclasses of DataParallel, `data_parallel(...)`, and calls of replicate, scatter,
    parallel_apply, gather and torch.cuda.comm.

    ## Why
    One process drives several devices there. A rank has one device, and what such code does with the parts is
    its own affair.

    ## Safety
    Nothing is changed. A script in which nothing else of DataParallel is left is not converted at all.

    ## References
    torch/nn/parallel; IDIOMS: 5 repositories by hand, 4 functional, 7 subclasses.
    """

    code = "DDP902"
    name = "hand-made-parallel"
    examples = (
        Flags(
            before="""
                from torch import nn
                replicas = nn.parallel.replicate(net, [0, 1])
            """,
            message="replicate()",
        ),
        Flags(
            before="""
                from torch.nn.parallel import data_parallel
                y = data_parallel(net, x, [0, 1])
            """,
            message="data_parallel()",
        ),
        Flags(
            before="""
                import torch
                class Balanced(torch.nn.DataParallel):
                    pass
            """,
            message="class Balanced",
        ),
        Flags(
            before="""
                from encoding.parallel import DataParallelModel
                net = DataParallelModel(net)
            """,
            message="DataParallelModel is not torch's",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nrows = scatter(rows)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for node in subclasses(facts.script):
            yield Hazard(
                node,
                f"class {node.name} changes how DataParallel works",
                "use DataParallel itself if its plain behaviour will do, then convert again",
            )
        for call in foreign_wraps(facts.script):
            told = ast.unparse(call.node.func)
            yield Hazard(
                call.node, f"{told} is not torch's DataParallel, and what it does is not known", _ADVICE
            )
        for call in calls_by_hand(facts.script):
            part = (call.name or "").rpartition(".")[2]
            yield Hazard(call.node, f"{part}() drives several devices from one process", _ADVICE)


_ADVICE = "wrap the model in nn.DataParallel instead, which does the same, then convert again"
