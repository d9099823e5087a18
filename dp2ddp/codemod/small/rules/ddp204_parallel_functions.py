"""DDP204: the parts of DataParallel, called by hand."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Module
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
    """

    code = "DDP204"
    name = "parallel-functions"
    nodes = ("Attribute", "Name")
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        return replaced(module, HELPERS, "rank r computes part r")
