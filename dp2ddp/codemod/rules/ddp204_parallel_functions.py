"""Run the parts of DataParallel over the ranks.

`scatter`, `replicate`, `parallel_apply`, `gather`, `Broadcast.apply`, `Scatter.apply` and the functional
`data_parallel` become functions of the same arguments and results, `..._on_ranks`; what runs replicas, `..._in_turns`
where a forward or a hook of the program fills something that outlives it.

They copy to devices of one process; a rank has one device. The script holds all chunks, all replicas and all
outputs: every rank holds all of them, so the code around stays as it is written.

`parallel_apply` runs replica r on rank r alone, and gives all ranks the outputs of all. A replica that is called in
another way raises on every other rank. In turns, a function that is no replica raises.

torch/nn/parallel/*.py; docs/training.md#models.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.looks.filling import fillings
from dp2ddp.codemod.looks.mentions import replaced
from dp2ddp.codemod.looks.replicated import has_callbacks
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff

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
IN_TURNS = {
    "torch.nn.parallel.data_parallel": "data_parallel_in_turns",
    "torch.nn.parallel.parallel_apply": "parallel_apply_in_turns",
}


class ParallelFunctions(Rule):
    nodes = ("Attribute", "Name")
    examples = (
        diff("""
              from torch import nn
              def run(net, x, devices):
            -     replicas = nn.parallel.replicate(net, devices)
            -     parts = nn.parallel.scatter(x, devices)
            -     outputs = nn.parallel.parallel_apply(replicas[:len(parts)], parts)
            -     return nn.parallel.gather(outputs, devices[0])
            +     replicas = replicate_on_ranks(net, devices)
            +     parts = scatter_on_ranks(x, devices)
            +     outputs = parallel_apply_on_ranks(replicas[:len(parts)], parts)
            +     return gather_on_ranks(outputs, devices[0])
        """),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)\nrows = scatter(rows)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        exchange = has_callbacks(module.program)  # while they run, which DDP207 looks at
        in_turns = not exchange and fillings(module.program)
        helpers = {**HELPERS, **(IN_TURNS if in_turns else {})}
        yield from replaced(module, helpers, "rank r computes chunk r")
