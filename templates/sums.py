"""Gradients of parameters, summed over the ranks inside the graph."""

from typing import Any, Dict, List, Sequence
from weakref import WeakSet

import torch
import torch.distributed as dist

from .broadcast import Rank
from .replicas import share_tensors

Tensors = Sequence[torch.Tensor]


class GradientSums:
    """The parameters of one forward on their way into a replica, and their gradients on the way back.

    Sums set out while backward runs, in buckets and in one order on all ranks, as those of DistributedDataParallel do:
    unless something else that ranks exchange in backward could come between (wait).
    """

    in_graphs: "WeakSet[GradientSums]" = WeakSet()

    def __init__(self, module: torch.nn.Module, wait: bool) -> None:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        sparse = {part.weight for part in module.modules() if getattr(part, "sparse", False) is True}
        self.tables = [parameter for parameter in trained if parameter in sparse]
        self.buckets = make_buckets([parameter for parameter in trained if parameter not in sparse])
        self.wait, self.buffers = wait, [*module.buffers()]
        self.in_graphs.add(self)
        self.begin()

    def begin(self) -> None:
        """Behind a forward, or a backward: another backward may follow."""
        self.messages: Dict[int, torch.Tensor] = {}  # gradients of a bucket, then their sums
        self.works: List[Any] = []
        self.versions = [buffer._version for buffer in self.buffers]

    def copies(self) -> Dict[torch.Tensor, torch.Tensor]:
        """What stands for each trained parameter in the replica of this rank."""
        parameters = [*(p for bucket in self.buckets for p in bucket), *self.tables]
        copies = dict(zip(parameters, AwaitSums.apply(self, *parameters) if parameters else ()))
        for number, bucket in enumerate(self.buckets):
            leaving = LeaveRank.apply(self, number, *(copies[parameter] for parameter in bucket))
            if hasattr(leaving[0].grad_fn, "_set_sequence_nr"):  # it runs as soon as its gradients are there
                leaving[0].grad_fn._set_sequence_nr(2**62)
            copies.update(zip(bucket, leaving))
        return copies

    def arrive(self, number: int, gradients: Tensors) -> None:
        """Gradients of a bucket are there; its sum sets out once those before it have."""
        if number < len(self.works):
            raise RuntimeError("gradients came after their sum: call checkpoint with use_reentrant=False")
        message = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self.messages[number] = self.messages[number] + message if number in self.messages else message
        if not self.wait and len(self.in_graphs) == 1:
            self.set_out()

    def set_out(self) -> None:
        while len(self.works) in self.messages:
            self.works.append(dist.all_reduce(self.messages[len(self.works)], async_op=True))

    def finish(self, of_tables: Tensors) -> List[torch.Tensor]:
        """The sums of all gradients; zeros where backward left parameters out, as DataParallel has them."""
        sums: List[torch.Tensor] = []
        for number, bucket in enumerate(self.buckets):
            if number not in self.messages:
                self.messages[number] = torch.cat([torch.zeros_like(p).reshape(-1) for p in bucket])
        self.set_out()
        for number, bucket in enumerate(self.buckets):
            self.works[number].wait()
            parts = self.messages[number].split([parameter.numel() for parameter in bucket])
            sums += [part.view_as(parameter) for part, parameter in zip(parts, bucket)]
        sums += map(sum_sparse, of_tables, self.tables)
        if self.versions != [buffer._version for buffer in self.buffers]:
            share_tensors(self.buffers)  # a checkpoint has run its part of the forward again
        self.begin()
        self.in_graphs.discard(self)
        return sums


def sum_sparse(gradient: Any, table: torch.Tensor) -> torch.Tensor:
    """The sum of what ranks looked up in a table, in rank order, as DataParallel adds; dense if one of them is."""
    parts: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, gradient, Rank.host)
    own = [part.to(table.device) for part in parts if part is not None]
    own = own if all(part.is_sparse for part in own) else [part.to_dense() for part in own]
    return sum(own[1:], own[0]) if own else torch.zeros_like(table).to_sparse()


def make_buckets(parameters: Tensors) -> List[List[torch.Tensor]]:
    """The last parameters first (they are the first to have gradients): 1 MB, then 25 MB each."""
    buckets: List[List[torch.Tensor]] = []
    room = 0
    for parameter in parameters[::-1]:
        size = parameter.numel() * parameter.element_size()
        if not buckets or size > room or parameter.dtype != buckets[-1][0].dtype:
            room = 25 * 2**20 if buckets else 2**20
            buckets.append([])
        buckets[-1].append(parameter)
        room -= size
    return buckets


class LeaveRank(torch.autograd.Function):
    """Copies of a bucket's parameters; backward brings their gradients."""

    @staticmethod
    def forward(ctx: Any, sums: GradientSums, number: int, *tensors: torch.Tensor) -> Any:
        ctx.sums, ctx.number = sums, number
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # there will be gradients of these: AwaitSums sums them as functions
            return (None, None, *gradients)
        ctx.sums.arrive(ctx.number, gradients)
        return (None, None, *(None for _ in gradients))


class AwaitSums(torch.autograd.Function):
    """Copies of all parameters. It is made before the forward, so its backward runs last, and waits for the sums."""

    @staticmethod
    def forward(ctx: Any, sums: GradientSums, *parameters: torch.Tensor) -> Any:
        ctx.sums, ctx.parameters = sums, parameters
        ctx.set_materialize_grads(False)
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if not torch.is_grad_enabled():
            return (None, *ctx.sums.finish(gradients[len(gradients) - len(ctx.sums.tables) :]))
        pairs = zip(gradients, ctx.parameters)
        return (None, *SumOverRanks.apply(*(torch.zeros_like(p) if g is None else g for g, p in pairs)))


class SumOverRanks(torch.autograd.Function):
    """The sums over the ranks of what each of them has. CopyToRanks is its gradient, and the other way round."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
        sums = [tensor.clone().contiguous() for tensor in tensors]
        for each in sums:
            dist.all_reduce(each)
        return tuple(sums)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return CopyToRanks.apply(*gradients)


class CopyToRanks(torch.autograd.Function):
    """Tensors that all ranks hold; their gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return SumOverRanks.apply(*gradients)
