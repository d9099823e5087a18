"""Gradients of parameters, summed over the ranks while backward runs."""

from typing import Any, Dict, List, Sequence
from weakref import WeakSet

import torch
import torch.distributed as dist

from .model import WholeBatch
from .replicas import ModuleState, buckets_of, run_at_once
from .sums import GradientSums


class OverlappingSums(GradientSums):
    """GradientSums that set out while backward runs, in DistributedDataParallel's buckets, in one order on all ranks.

    Unless something else that ranks exchange in backward could come between: sums of another forward, or what a wrapper
    has to wait for.
    """

    in_graphs: "WeakSet[OverlappingSums]" = WeakSet()

    def __init__(self, state: ModuleState, wait: bool) -> None:
        super().__init__(state, wait)
        self.buckets = buckets_of(self.dense)
        self.in_graphs.add(self)

    def begin(self) -> None:
        super().begin()
        self.messages: Dict[int, torch.Tensor] = {}  # gradients of a bucket, then their sums
        self.works: List[Any] = []

    def copies(self) -> Dict[torch.Tensor, torch.Tensor]:
        copies = super().copies()
        for number, bucket in enumerate(self.buckets):
            leaving = LeaveRank.apply(self, number, *(copies[parameter] for parameter in bucket))
            run_at_once(leaving[0].grad_fn)
            copies.update(zip(bucket, leaving))
        return copies

    def arrive(self, number: int, gradients: Sequence[torch.Tensor]) -> None:
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

    def sum_dense(self, gradients: Sequence[Any]) -> Sequence[torch.Tensor]:
        sums: Dict[torch.Tensor, torch.Tensor] = {}
        for number, bucket in enumerate(self.buckets):
            if number not in self.messages:
                self.messages[number] = torch.cat([torch.zeros_like(p).reshape(-1) for p in bucket])
        self.set_out()
        for number, bucket in enumerate(self.buckets):
            self.works[number].wait()
            parts = self.messages[number].split([parameter.numel() for parameter in bucket])
            sums.update((parameter, part.view_as(parameter)) for part, parameter in zip(parts, bucket))
        self.in_graphs.discard(self)
        return [sums[parameter] for parameter in self.dense]


class LeaveRank(torch.autograd.Function):
    """Copies of a bucket's parameters; backward brings their gradients."""

    @staticmethod
    def forward(ctx: Any, sums: OverlappingSums, number: int, *tensors: torch.Tensor) -> Any:
        ctx.sums, ctx.number = sums, number
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # there will be gradients of these: CopyToRanks sums them as functions
            return (None, None, *gradients)
        ctx.sums.arrive(ctx.number, gradients)
        return (None, None, *(None for _ in gradients))


class WholeBatchParallel(WholeBatch):
    """WholeBatch for a program that wraps one model: its gradients are summed while backward runs."""

    stands_for_data_parallel = True
    sums = OverlappingSums
