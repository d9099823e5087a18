"""DDP207: replicas that exchange messages while they run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Decorate, Finding, Hazard, Lift
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.replication import Master, replaced_in_torch
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

_LAYER = """
                import torch
                class SlavePipe:
                    def run_slave(self, message):
                        self.queue.put(message)
                        return self.answers.get()
                class SyncMaster:
                    def __init__(self, master_callback):
                        self._master_callback = master_callback
                    def register_slave(self, identifier):
                        return SlavePipe(identifier, self._queue)
                    def run_master(self, message):
                        return self._master_callback([(0, message), self._queue.get()])[0][1]
                class SyncedBatchNorm(torch.nn.BatchNorm2d):
                    def __init__(self, width):
                        super().__init__(width)
                        self._sync_master = SyncMaster(self._statistics)
                    def forward(self, x):
                        if self._parallel_id == 0:
                            mean = self._sync_master.run_master(x.mean((0, 2, 3)))
                        else:
                            mean = self._slave_pipe.run_slave(x.mean((0, 2, 3)))
                        return x - mean[:, None, None]
                    def __data_parallel_replicate__(self, ctx, copy_id):
                        self._parallel_id = copy_id
                        if copy_id == 0:
                            ctx.sync_master = self._sync_master
                        else:
                            self._slave_pipe = ctx.sync_master.register_slave(copy_id)
"""
_WRAPPER = """
                class WithCallback(torch.nn.DataParallel):
                    def replicate(self, module, device_ids):
                        replicas = super().replicate(module, device_ids)
                        for number, replica in enumerate(replicas):
                            replica.__data_parallel_replicate__(Context(), number)
                        return replicas
                net = WithCallback(SyncedBatchNorm(2))
"""


class ReplicasExchangeMessages(Rule):
    """Let replicas that exchange messages while they run be ranks.

    ## What it does
    Batch norm that is synchronised between the replicas of DataParallel (Synchronized-BatchNorm-PyTorch and its
    copies: `__data_parallel_replicate__`, a SyncMaster, pipes) stays as it is written. The class that brings the
    messages together gets the decorator `master_on_ranks(...)`, and the wrapper is `SyncedOnRanks`. A hazard where
    layers talk with each other in a way that is not known here, and where a part of DataParallel is replaced in torch.

    ## Why
    Replicas are threads there, which send their sums to the first one's. As processes they would wait for ever.

    ## Safety
    Every rank gets the messages of all replicas, in their order, and calls the layer's own function of them: the
    formula (eps, biased or not, momentum) is the script's. Gradients go back the same way. Ranks without rows take
    part with nothing. A layer whose callback nobody calls is plain batch norm, and is left alone.

    ## References
    Synchronized-BatchNorm-PyTorch: batchnorm.py, comm.py, replicate.py; docs/models.md#batch-norm-over-all-replicas,
    docs/semantics.md#sync-batchnorm.
    """

    code = "DDP207"
    name = "replicas-exchange-messages"
    nodes = ("ClassDef",)
    examples = (
        Rewrites(
            before=_LAYER + _WRAPPER,
            after=_LAYER.replace(
                "class SyncMaster",
                '@master_on_ranks("_master_callback", "register_slave", "run_master", "run_slave")\n'
                "                class SyncMaster",
            )
            + _WRAPPER,
        ),
        Flags(
            before=_LAYER.replace("self._sync_master.run_master(", "self._sync_master.queue.put(") + _WRAPPER,
            message="in a way that is not known",
        ),
        Flags(
            before="""
                import torch
                torch.nn.DataParallel.replicate = lambda self, module, devices: [module for _ in devices]
                net = torch.nn.DataParallel(net)
            """,
            message="is replaced in torch itself",
        ),
        Untouched(_LAYER + "                net = torch.nn.DataParallel(SyncedBatchNorm(2))\n"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for master in (master for master in facts.replication.masters if master.script is facts.script):
            because = "the replicas that it brings together are ranks"
            yield Decorate(master.node, _decorator(facts, master), because)
            yield Lift("master_on_ranks", because)
        for callback in facts.replication.unread:
            if callback in facts.script.scopes.parents:
                yield Hazard(
                    callback,
                    "the replicas of this layer talk with each other in a way that is not known here, "
                    "and they are other processes now",
                    "use torch.nn.SyncBatchNorm, or the SyncMaster of Synchronized-BatchNorm-PyTorch as it is",
                )
        for part in replaced_in_torch(facts.script):
            yield Hazard(
                part,
                f"{ast.unparse(part)} is replaced in torch itself, which the ranks do not ask",
                "override it in a subclass of DataParallel, then convert again",
            )


def _decorator(facts: Facts, master: Master) -> str:
    import json  # for the few scripts in which replicas exchange messages

    names = (
        master.callback,
        master.protocol.register,
        master.protocol.run_master,
        master.protocol.run_slave,
    )
    arguments = ", ".join(map(json.dumps, names))
    return f"@{facts.names.helper('master_on_ranks')}({arguments})"
