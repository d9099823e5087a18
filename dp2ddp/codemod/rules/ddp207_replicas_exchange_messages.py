"""Let replicas that exchange messages while they run be ranks.

Batch norm that is synchronised between the replicas of DataParallel (Synchronized-BatchNorm-PyTorch and its
copies) stays as it is written: its class SyncMaster gets the decorator `@master_on_ranks`. A hazard where layers
talk with each other in another way, and where a part of DataParallel is replaced in torch.

Replicas are threads there, which send their sums to the first one's. As processes they would wait for ever.

Every rank gets the messages of all replicas, in their order, and calls the layer's own function of them: the
formula (eps, biased or not, momentum) is the script's. Gradients go back the same way. A layer whose callback
nobody calls is plain batch norm, and is left alone.

Synchronized-BatchNorm-PyTorch: batchnorm.py, comm.py, replicate.py; docs/semantics.md#sync-batchnorm.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Decorate, Finding, Hazard
from dp2ddp.codemod.looks.replicated import (
    CALLBACK,
    has_callbacks,
    is_master,
    replaced_in_torch,
    talks_through_master,
)
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched

_LAYER = """
                import torch
                class SyncMaster:
                    def __init__(self, master_callback):
                        self._master_callback = master_callback
                    def register_slave(self, identifier):
                        return SlavePipe(identifier, self._queue)
                    def run_master(self, message):
                        return self._master_callback([(0, message), self._queue.get()])[0][1]
                class SyncedBatchNorm(torch.nn.BatchNorm2d):
                    def __data_parallel_replicate__(self, ctx, copy_id):
                        if copy_id == 0:
                            ctx.sync_master = self._sync_master
                        else:
                            self._slave_pipe = ctx.sync_master.register_slave(copy_id)
"""
_WRAPPER = """
                class WithCallback(DataParallelOnRanks):
                    def replicate(self, module, device_ids):
                        replicas = super().replicate(module, device_ids)
                        for number, replica in enumerate(replicas):
                            replica.__data_parallel_replicate__(Context(), number)
                        return replicas
                net = WithCallback(SyncedBatchNorm(2))
"""


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


class ReplicasExchangeMessages(Rule):
    nodes = ("ClassDef",)
    examples = (
        Rewrites(
            before=_LAYER + _WRAPPER,
            after=_LAYER.replace("class SyncMaster", "@master_on_ranks\n                class SyncMaster")
            + _WRAPPER,
        ),
        Flags(
            _LAYER.replace("ctx.sync_master.register_slave(copy_id)", "ctx.barrier")
            + _WRAPPER
            + "                torch.nn.DataParallel.replicate = lambda self, module, ids: [module for _ in ids]\n",
            ("in a way that is not known", "is replaced in torch itself"),
        ),
        Untouched(_LAYER + "                net = SyncedBatchNorm(2)\n"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        if has_callbacks(module.program):
            for kind in module.all(ast.ClassDef):
                if is_master(kind):
                    because = "the replicas that it brings together are ranks"
                    yield Decorate(kind, "@master_on_ranks", because, helpers=("master_on_ranks",))
            for callback in module.all(ast.FunctionDef):
                if callback.name == CALLBACK and not talks_through_master(callback):
                    yield Hazard(callback, UNKNOWN)
        for part in replaced_in_torch(module):
            yield Hazard(part, REPLACED.of(part=ast.unparse(part)))
