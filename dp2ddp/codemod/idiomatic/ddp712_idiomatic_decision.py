"""DDP712: batches that one rank would skip."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import InsertBefore, Replace
from dp2ddp.codemod.idiomatic.deciding_figures import skipping
from dp2ddp.codemod.idiomatic.models import wraps_of
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, names_cuda, words_of
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched

NAME = "skips"


class SharedDecision(IdiomaticRule):
    """Skip a batch on all ranks or on none.

    ## What it does
    Where a loop that trains goes on or ends by what a batch holds (`if torch.isnan(loss): continue`), the ranks add up
    what each of them finds, and do what one of them has to do.

    ## Why
    A rank that skips a backward pass leaves the others waiting for its gradients.

    ## Safety
    The test is evaluated once, as before, on every rank.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP712"
    name = "idiomatic-decision"
    nodes = ("BaseStatement", "If")
    examples = (
        Rewrites(
            before="""
                import torch
                import torch.distributed as dist
                net = torch.nn.DataParallel(net.cuda())
                for x, y in batches:
                    loss = criterion(net(x), y)
                    if torch.isnan(loss):
                        continue
                    loss.backward()
            """,
            after="""
                import torch
                import torch.distributed as dist
                net = torch.nn.DataParallel(net.cuda())
                for x, y in batches:
                    loss = criterion(net(x), y)
                    skips = torch.tensor(float(torch.isnan(loss)), device="cuda")
                    dist.all_reduce(skips)  # what one rank does, all do
                    if skips > 0:
                        continue
                    loss.backward()
            """,
        ),
        Untouched("for x in batches:\n    if torch.isnan(x):\n        continue"),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        words = words_of(module)
        for node in skipping(module) if wraps_of(module.program) else ():
            device = ', device="cuda"' if names_cuda(module.program) else ""
            code = f"{NAME} = {words['torch']}.tensor(float({ast.unparse(node.test)}){device})\n"
            code += f"{words['dist']}.all_reduce({NAME})  # what one rank does, all do"
            because = "all ranks skip a batch, or none"
            yield Change(InsertBefore(node, code, because, apart=False), ("torch", "dist"))
            yield Change(Replace(node.test, f"{NAME} > 0", because))
