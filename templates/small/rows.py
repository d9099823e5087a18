"""Rows of a rank."""

from typing import Any

import torch
import torch.distributed as dist


class TakeRows(torch.autograd.Function):
    """A rank's rows of a tensor that all ranks hold alike; counts are the numbers of rows of each rank."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, counts: list[int], dim: int) -> torch.Tensor:
        ctx.counts, ctx.dim = counts, dim
        return whole.split(counts, dim)[dist.get_rank()].clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return JoinRows.apply(gradient, ctx.counts, ctx.dim), None, None


class JoinRows(torch.autograd.Function):
    """The rows of all ranks, in rank order."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: list[int] | None, dim: int) -> torch.Tensor:
        rows = rows.movedim(dim, 0)
        if counts is None:
            each = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
            dist.all_gather(each, torch.tensor([len(rows)]))
            counts = [int(count) for count in each]
        ctx.counts, ctx.dim = counts, dim
        padded = rows.new_zeros(max(counts), *rows.shape[1:])  # all_gather wants equal shapes
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:count] for part, count in zip(gathered, counts)]).movedim(0, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return TakeRows.apply(gradient, ctx.counts, ctx.dim), None, None


def from_rank(form: Any, owner: int, tensor: Any, ties: list[torch.Tensor]) -> torch.Tensor:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if tensor is None:
        tensor = torch.empty(form.shape, dtype=form.dtype, device=ties[0].device if ties else device)
    return FromRank.apply(owner, form.requires_grad, tensor, *ties)


class Form:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype, self.requires_grad = tensor.shape, tensor.dtype, tensor.requires_grad


class FromRank(torch.autograd.Function):
    """A tensor of one rank, on all ranks; ties are what all ranks go back to when one of them does."""

    @staticmethod
    def forward(
        ctx: Any, owner: int, requires_grad: bool, tensor: torch.Tensor, *ties: torch.Tensor
    ) -> torch.Tensor:
        ctx.own, ctx.count = owner == dist.get_rank(), len(ties)
        whole = tensor.detach().clone().contiguous()
        dist.broadcast(whole, owner)
        if not requires_grad:
            ctx.mark_non_differentiable(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, gradient if ctx.own else None, *(None,) * ctx.count
