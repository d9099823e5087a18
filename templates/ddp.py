"""DistributedDataParallel in DataParallel's place, for scripts that train one model, by one backward a step."""

import atexit
import copy
import copyreg
import weakref
from typing import Any, List

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from .broadcast import exchange_numbers
from .draws import ReplicaDraws
from .ranks import init_distributed, together
from .replicas import make_replica, run_alone, share_tensors, versions_of
from .rows import gather_rows
from .trees import map_tensors


class WholeBatchDDP(DistributedDataParallel):
    """DistributedDataParallel that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r of the batch, on a replica; a rank without rows computes two, and keeps nothing of them. All
    ranks compute the loss of the whole batch. Buffers are rank 0's, as DataParallel's are its first replica's.
    """

    def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        init_distributed()  # a script that was not converted may import what was
        super().__init__(module.cuda() if torch.cuda.is_available() else module)
        type(self).__name__ = type(self).__qualname__ = "DataParallel"  # scripts go by its name
        self.broadcast_buffers = False  # before forwards: they are shared behind them
        refuse(dim != 0, "batches are not cut along dimension 0")
        self.is_alone = dist.get_world_size() == 1 or device_ids is not None and len(device_ids) == 1
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.sums = SumsOnce()
        self.register_comm_hook(None, self.sums.average)
        atexit.register(drop_reducer, weakref.ref(self))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.is_alone or not together():
            return run_alone(self.module, inputs, kwargs)
        rank, world, draws = dist.get_rank(), dist.get_world_size(), ReplicaDraws()
        if torch.is_grad_enabled():
            self.check()
        has_rows = rank == 0 or bool(inputs or kwargs)  # without arguments, DataParallel runs on one device

        def take_rows(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal has_rows
            refuse(tensor.requires_grad and torch.is_grad_enabled(), "an input needs a gradient")
            chunks = tensor.chunk(world)
            has_rows = has_rows and rank < len(chunks)
            return (chunks[rank] if rank < len(chunks) else tensor[:2]).to(self.device, copy=True)

        def keep_rows(output: torch.Tensor) -> torch.Tensor:
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            sizes.append(len(rows) if has_rows else 0)
            return rows[: sizes[-1]]

        def gather(rows: torch.Tensor) -> Any:
            trained = self.trained if rows.requires_grad else []
            return GatherRows.apply(self.sums, next(counts), rows, *trained)

        inputs, kwargs = map_tensors(take_rows, (inputs, kwargs))
        before = versions_of(self.module)
        sizes: List[int] = []
        with draws(has_rows):
            outputs = map_tensors(keep_rows, super().forward(*inputs, **kwargs))
        after = versions_of(self.module)
        refuse(after[1] != before[1], "a forward writes into parameters")
        writes = self.training or after[0] != before[0]
        numbers = exchange_numbers([draws.on_host, draws.on_device, writes, *sizes])
        on_host, on_device, all_writes, *columns = zip(*numbers)
        draws.go_on(bool(on_host[0]), bool(on_device[0]))
        if any(all_writes):
            share_tensors([*self.module.buffers()])
        counts = iter(columns)
        return map_tensors(gather, outputs)

    def check(self) -> None:
        """Refuse what DistributedDataParallel does not see."""
        trained = [p for p in self.module.parameters() if p.requires_grad]
        others = [*map(id, trained)] != [*map(id, self.trained)]
        refuse(others, "other parameters are trained than at the wrap")
        hooked = [each for each in (*trained, *self.module.modules()) if each._backward_hooks]
        refuse(bool(hooked), "a parameter or a layer has a backward hook")
        self.sums.are_done = False

    def _run_ddp_forward(self, *inputs: Any, **kwargs: Any) -> Any:
        copies = {p: p.view_as(p) for p in self.module.parameters()}
        return make_replica(self.module, copies)(*inputs, **kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        new = WholeBatchDDP(copy.deepcopy(self.module, memo))
        new.training = self.training  # its own alone: parts may be in another mode
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is the DataParallel that it stands for."""
        state = {**vars(torch.nn.DataParallel(self.module)), "training": self.training}
        kind = (torch.nn.DataParallel, object, None)
        return copyreg._reconstructor, kind, state  # type: ignore[attr-defined]


class GatherRows(torch.autograd.Function):
    """A rank's rows to those of all ranks.

    All ranks compute the loss of the whole batch, so the gradient of a rank's rows is its part of DataParallel's sum.
    DistributedDataParallel averages, also what is in .grad already: it needs world_size times as much. Parameters that
    a replica leaves out get None here, and zeros from DistributedDataParallel, as under DataParallel.
    """

    @staticmethod
    def forward(
        ctx: Any, sums: Any, counts: Any, rows: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.sums, ctx.counts, ctx.others = sums, counts, [None for _ in parameters]
        return gather_rows(rows, counts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        refuse(torch.is_grad_enabled(), "gradients of gradients are wanted")
        refuse(ctx.sums.are_done, "a second backward comes before the next forward")
        torch.autograd.Variable._execution_engine.queue_callback(ctx.sums.check)
        return (None, None, gradient.split(ctx.counts)[dist.get_rank()] * dist.get_world_size(), *ctx.others)


class SumsOnce:
    """DistributedDataParallel sums gradients once between two forwards: this sees whether it has."""

    are_done = False

    def average(
        self,
        group: Any,
        bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch looks at both annotations
    ) -> torch.futures.Future[torch.Tensor]:
        self.are_done = True
        return allreduce_hook(group, bucket)

    def check(self) -> None:
        refuse(not self.are_done, "autograd.grad or backward(inputs=...) asks for some gradients")


def drop_reducer(model: Any) -> None:
    """At exit, before the process group ends: with gloo, a reducer that outlives it may abort the process."""
    if model() is not None:
        vars(model()).update(reducer=None, logger=None)


def refuse(condition: bool, reason: str) -> None:
    if condition:
        raise RuntimeError(f"{reason}: wrap the model in WholeBatchParallel, not in WholeBatchDDP")
