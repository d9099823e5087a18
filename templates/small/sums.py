"""Gradients, summed over the ranks."""

from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors as flatten
from torch._utils import _unflatten_dense_tensors as unflatten


class Crossing:
    """The parameters of one forward on their way into the replica, and the way back of their gradients, which are summed over the ranks.

    Sums begin while backward runs, in buckets and in one order on all ranks, as those of DistributedDataParallel do.
    """

    live: "WeakSet[Crossing]" = WeakSet()

    def __init__(self, parameters: list[torch.Tensor], early: bool, parts: Any) -> None:
        self.early, self.buckets, room = early, [], 0
        tables = {
            id(part.weight)
            for part in parts
            if getattr(part, "sparse", False) is True and hasattr(part, "weight")
        }
        self.sparse = [i for i, parameter in enumerate(parameters) if id(parameter) in tables]
        for i in reversed(range(len(parameters))):  # the last are the first to have gradients
            if (
                not self.buckets
                or parameters[i].nbytes > room
                or parameters[i].dtype != parameters[self.buckets[-1][0]].dtype
            ):
                self.buckets.append([])
                room = 25 * 2**20 if len(self.buckets) > 1 else 2**20
            self.buckets[-1].append(i)
            room -= parameters[i].nbytes
        self.live.add(self)
        self.begin()

    def begin(self) -> None:
        self.own: list[Any] = [None] * len(self.buckets)  # gradients of this rank
        self.rows: dict[int, torch.Tensor] = {}  # of tables with sparse gradients, the rows that have one
        self.flats: list[torch.Tensor] = []
        self.works: list[Any] = []

    def copies(self, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        outer = AwaitSums.apply(self, *parameters)
        copies = [*outer]
        for k, bucket in enumerate(self.buckets):
            some = LeaveRank.apply(self, k, *(outer[i] for i in bucket))
            some[0].grad_fn._set_sequence_nr(2**62)  # autograd runs it as soon as its gradients are there
            for i, copy in zip(bucket, some):
                copies[i] = copy
        return copies

    def arrive(self, k: int, gradients: Any) -> None:
        for i, gradient in zip(self.buckets[k], gradients):
            if gradient.is_sparse:
                self.rows[i] = torch.cat(
                    [self.rows.get(i, gradient._indices()[0][:0]), gradient._indices()[0]]
                )
        gradients = [gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients]
        if self.own[k] is not None:  # a reentrant checkpoint brings gradients one by one
            if len(self.flats) > k:
                raise RuntimeError(
                    "gradients came after their sum had begun: checkpoint(..., use_reentrant=False)"
                )
            gradients = [a + b for a, b in zip(self.own[k], gradients)]
        self.own[k] = gradients
        if self.early and len(self.live) == 1:  # nothing else can come between
            self.start()

    def start(self) -> None:
        while len(self.flats) < len(self.own) and self.own[len(self.flats)] is not None:
            self.flats.append(flatten(self.own[len(self.flats)]))
            self.works.append(dist.all_reduce(self.flats[-1], async_op=True))

    def finish(self, gradients: Any) -> list[torch.Tensor]:
        for k, bucket in enumerate(self.buckets):
            if self.own[k] is None:
                self.own[k] = [gradients[i] for i in bucket]  # zeros
        self.start()
        sums = [*gradients]
        for work, flat, own, bucket in zip(self.works, self.flats, self.own, self.buckets):
            work.wait()
            for i, part in zip(bucket, unflatten(flat, own)):
                sums[i] = part
        for i in self.sparse:
            rows: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(rows, self.rows.get(i, torch.empty(0, dtype=torch.int64)).cpu())
            some = torch.cat(rows).unique().to(sums[i].device)
            sums[i] = torch.sparse_coo_tensor(some[None], sums[i][some], sums[i].shape)
        self.begin()
        self.live.discard(self)
        return sums


class LeaveRank(torch.autograd.Function):
    """A bucket's copies for the replica; backward begins the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, crossing: Crossing, k: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.crossing, ctx.k = crossing, k
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # there will be gradients of gradients
            return None, None, *gradients
        ctx.crossing.arrive(ctx.k, gradients)
        return (None,) * (2 + len(gradients))


class AwaitSums(torch.autograd.Function):
    """All parameters on their way; it is made before the forward, so its backward runs last, and waits for the sums."""

    @staticmethod
    def forward(ctx: Any, crossing: Crossing, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.crossing = crossing
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, *(
            SumOverRanks.apply(*gradients) if torch.is_grad_enabled() else ctx.crossing.finish(gradients)
        )


class SumOverRanks(torch.autograd.Function):
    """The sum over the ranks of what each of them has; its gradient is a sum again."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums = [*tensors]
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = flatten([tensors[i] for i in places])
            dist.all_reduce(flat)
            for i, part in zip(places, unflatten(flat, [tensors[i] for i in places])):
                sums[i] = part
        return tuple(sums)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return CopyToRanks.apply(*gradients)


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)
