"""DDP204: the parts of DataParallel, called by hand."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rewrites, Untouched
from dp2ddp.codemod.small.mentions import replaced
from dp2ddp.codemod.small.rule import Finding, Rule

HELPERS = {
    "torch.nn.parallel.data_parallel": "data_parallel_on_ranks",
    "torch.nn.parallel.replicate": "replicate_on_ranks",
    "torch.nn.parallel.parallel_apply": "parallel_apply_on_ranks",
    "torch.nn.parallel.scatter": "scatter_on_ranks",
    "torch.nn.parallel.gather": "gather_on_ranks",
    "torch.nn.parallel.scatter_kwargs": "scatter_kwargs_on_ranks",
    "torch.nn.parallel._functions.Scatter.apply": "scatter_tensor_on_ranks",
    "torch.nn.parallel._functions.Broadcast.apply": "broadcast_on_ranks",
    "torch.nn.parallel._functions.ReduceAddCoalesced.apply": "reduce_add_on_ranks",
}


class ParallelFunctions(Rule):
    """Run the parts of DataParallel over the ranks.

    ## What it does
    `scatter`, `replicate`, `parallel_apply`, `gather` and `data_parallel` of torch.nn.parallel become functions that
    do the same over ranks.

    ## Why
    They copy to devices of one process; a rank has one device.

    ## Safety
    What they return is what DataParallel's functions return, a part on each rank.

    ## References
    torch/nn/parallel.
    """

    code = "DDP204"
    name = "parallel-functions"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.nn.parallel import parallel_apply, replicate
                parts = torch.nn.parallel.scatter(x, [0, 1])
                outputs = parallel_apply(replicate(net, [0, 1]), parts)
                y = torch.nn.parallel.gather(outputs, 0)
            """,
            after="""
                import torch
                from torch.nn.parallel import parallel_apply, replicate
                parts = scatter_on_ranks(x, [0, 1])
                outputs = parallel_apply_on_ranks(replicate_on_ranks(net, [0, 1]), parts)
                y = gather_on_ranks(outputs, 0)
            """,
        ),
        Untouched(
            """
                import torch
                parts = torch.scatter(x, 0, index, y)
            """
        ),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        return replaced(module, HELPERS, "rank r computes part r")
