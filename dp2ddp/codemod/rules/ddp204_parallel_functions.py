"""Run the parts of DataParallel over the ranks.

`scatter`, `replicate`, `parallel_apply`, `gather`, `Broadcast.apply`, `Scatter.apply` and the functional
`data_parallel` become functions of the same arguments and results, `..._on_ranks`; what runs replicas, `..._in_turns`
where a forward or a hook of the program fills something that outlives it. Batch norm that is synchronised between
replicas (Synchronized-BatchNorm-PyTorch and its copies) stays as it is written: its class SyncMaster gets the decorator
`@master_on_ranks`. A hazard where layers talk with each other in another way, and where a part of DataParallel is
replaced in torch.

They copy to devices of one process; a rank has one device. Replicas that talk are threads there; as processes they
would wait for ever.

`parallel_apply` runs replica r on rank r alone, and gives all ranks the outputs of all. A replica that is called in
another way raises on every other rank; in turns, so does a function that is no replica. Messages to a SyncMaster come
to every rank, in the order of the replicas, and gradients go back the same way. A layer whose callback nobody calls is
plain batch norm, and is left alone.

torch/nn/parallel/*.py; Synchronized-BatchNorm-PyTorch: batchnorm.py, comm.py, replicate.py; docs/training.md#models,
docs/semantics.md#sync-batchnorm.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Decorate, Finding, Hazard
from dp2ddp.codemod.looks.filling import fillings
from dp2ddp.codemod.looks.mentions import replaced
from dp2ddp.codemod.looks.replicated import (
    CALLBACK,
    has_callbacks,
    is_master,
    replaced_in_torch,
    talks_through_master,
)
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, diff, flags

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
UNKNOWN = Reason(
    "replicas-talk",
    "the replicas of this layer talk with each other in a way that is not known here, and they are other processes now",
    "use torch.nn.SyncBatchNorm, or the SyncMaster of Synchronized-BatchNorm-PyTorch as it is",
)
REPLACED = Reason(
    "replaced-in-torch",
    "{part} is replaced in torch itself, which the ranks do not ask",
    "override it in a subclass of DataParallel, then convert again",
)


class ParallelFunctions(Rule):
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
        flags("""
            # in a way that is not known
            # is replaced in torch itself
            import torch
            class Synced(torch.nn.BatchNorm2d):
                def __data_parallel_replicate__(self, ctx, copy_id):
                    self.barrier = ctx.barrier
            class WithCallback(torch.nn.DataParallel):
                def replicate(self, module, device_ids):
                    replicas = super().replicate(module, device_ids)
                    for number, replica in enumerate(replicas):
                        replica.__data_parallel_replicate__(Context(), number)
                    return replicas
            net = WithCallback(Synced(2))
            torch.nn.DataParallel.replicate = lambda self, module, ids: [module for _ in ids]
        """),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)\nrows = scatter(rows)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        exchange = has_callbacks(module.program)
        in_turns = not exchange and fillings(module.program)
        helpers = {**HELPERS, **(IN_TURNS if in_turns else {})}
        yield from replaced(module, helpers, "each rank computes its chunk of the batch")
        if exchange:
            yield from _talking(module)
        for part in replaced_in_torch(module):
            yield Hazard(part, REPLACED.of(part=ast.unparse(part)))


def _talking(module: Module) -> Iterator[Finding]:
    """Replicas that exchange messages while they run."""
    for kind in filter(is_master, module.all(ast.ClassDef)):
        because = "the replicas that it brings together are ranks"
        yield Decorate(kind, "@master_on_ranks", because, helpers=("master_on_ranks",))
    for callback in module.all(ast.FunctionDef):
        if callback.name == CALLBACK and not talks_through_master(callback):
            yield Hazard(callback, UNKNOWN)
