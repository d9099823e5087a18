"""Gradients of parameters, summed over the ranks inside the graph."""

from typing import Any, Collection, Dict, List, Optional, Sequence
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

    def __init__(self, parameters: Tensors, sparse: Collection[torch.Tensor], wait: bool = False) -> None:
        self.parameters, self.wait = parameters, wait
        self.sparse = [
            i for i, parameter in enumerate(parameters) if any(parameter is table for table in sparse)
        ]
        self.buckets = make_buckets(parameters, self.sparse)
        self.in_graphs.add(self)
        self.watch_buffers([])
        self.begin()

    def begin(self) -> None:
        self.own: List[Optional[Tensors]] = [None] * len(self.buckets)
        self.messages: List[torch.Tensor] = []
        self.works: List[Any] = []

    def watch_buffers(self, buffers: List[torch.Tensor]) -> None:
        """Backward may change them: a checkpoint runs its part of the forward again."""
        self.buffers, self.versions = buffers, [buffer._version for buffer in buffers]

    def copies(self) -> Dict[torch.Tensor, torch.Tensor]:
        """What stands for each parameter in the replica of this rank."""
        copies = [*AwaitSums.apply(self, *self.parameters)]
        for number, bucket in enumerate(self.buckets):
            leaving = LeaveRank.apply(self, number, *(copies[i] for i in bucket))
            if hasattr(
                leaving[0].grad_fn, "_set_sequence_nr"
            ):  # autograd runs it once its gradients are there
                leaving[0].grad_fn._set_sequence_nr(2**62)
            for i, copy in zip(bucket, leaving):
                copies[i] = copy
        return dict(zip(self.parameters, copies))

    def arrive(self, number: int, gradients: Tensors) -> None:
        """Gradients of a bucket are there; its sum sets out once those before it have."""
        own = self.own[number]
        if own is not None and len(self.messages) > number:
            raise RuntimeError("gradients came after their sum: call checkpoint with use_reentrant=False")
        self.own[number] = gradients if own is None else [a + b for a, b in zip(own, gradients)]
        if not self.wait and len(self.in_graphs) == 1:
            self.set_out()

    def set_out(self) -> None:
        while len(self.messages) < len(self.own):
            gradients = self.own[len(self.messages)]
            if gradients is None:
                return
            self.messages.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
            self.works.append(dist.all_reduce(self.messages[-1], async_op=True))

    def finish(self, gradients: List[Any]) -> List[torch.Tensor]:
        """The sums of all gradients; zeros where backward left parameters out, as DataParallel has them."""
        for number, bucket in enumerate(self.buckets):
            if self.own[number] is None:
                self.own[number] = [torch.zeros_like(self.parameters[i]) for i in bucket]
        self.set_out()
        for work, message, bucket in zip(self.works, self.messages, self.buckets):
            work.wait()
            for i, part in zip(bucket, message.split([self.parameters[i].numel() for i in bucket])):
                gradients[i] = part.view_as(self.parameters[i])
        for i in self.sparse:
            gradients[i] = sum_sparse(gradients[i], self.parameters[i])
        if self.versions != [buffer._version for buffer in self.buffers]:
            share_tensors(self.buffers)
        self.begin()
        self.in_graphs.discard(self)
        return gradients


def sum_sparse(gradient: Optional[torch.Tensor], parameter: torch.Tensor) -> torch.Tensor:
    """The sum of what ranks looked up in a table, in rank order, as DataParallel adds; dense if one of them is."""
    parts: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, gradient, Rank.host)
    own = [part.to(parameter.device) for part in parts if part is not None]
    own = own if all(part.is_sparse for part in own) else [part.to_dense() for part in own]
    return sum(own[1:], own[0]) if own else torch.zeros_like(parameter).to_sparse()


def make_buckets(parameters: Tensors, left_out: Sequence[int]) -> List[List[int]]:
    """Places of parameters, the last first (they are the first to have gradients): 1 MB, then 25 MB each."""
    buckets: List[List[int]] = []
    room = 0
    for i in reversed(range(len(parameters))):
        size = parameters[i].numel() * parameters[i].element_size()
        if i in left_out:
            continue
        if not buckets or size > room or parameters[i].dtype != parameters[buckets[-1][0]].dtype:
            room = 25 * 2**20 if buckets else 2**20
            buckets.append([])
        buckets[-1].append(i)
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
    def forward(ctx: Any, sums: GradientSums, *tensors: torch.Tensor) -> Any:
        ctx.sums = sums
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if not torch.is_grad_enabled():
            return (None, *ctx.sums.finish([*gradients]))
        pairs = zip(gradients, ctx.sums.parameters)
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
