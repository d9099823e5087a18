"""Rows of a batch: a rank's own, and those of all."""

from typing import Any, List, Sequence

import torch
import torch.distributed as dist

from .broadcast import gather_tensors


def gather_rows(rows: torch.Tensor, counts: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of all ranks along a dimension, in rank order; counts are the numbers of rows of all ranks."""
    rows = rows.transpose(0, dim)
    padded = rows.new_zeros(max(counts), *rows.shape[1:])  # all_gather wants equal shapes
    padded[: len(rows)] = rows
    parts = [part[:count].transpose(0, dim) for part, count in zip(gather_tensors(padded), counts)]
    return torch.cat(parts, dim)


class TakeRows(torch.autograd.Function):
    """This rank's rows of a tensor that all ranks hold; counts are the numbers of rows of all ranks."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, counts: List[int], dim: int) -> torch.Tensor:
        ctx.counts, ctx.dim = counts, dim
        return whole.split(counts, dim)[dist.get_rank()].clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return JoinRows.apply(gradient, ctx.counts, ctx.dim), None, None


class JoinRows(torch.autograd.Function):
    """The rows of all ranks. All ranks compute the same with them, so a rank's gradient is that of its rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: List[int], dim: int) -> torch.Tensor:
        ctx.counts, ctx.dim = counts, dim
        return gather_rows(rows, counts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return TakeRows.apply(gradient, ctx.counts, ctx.dim), None, None


class Rows:
    """Which rows of a batch this rank computes: DataParallel's chunk of its number."""

    def __init__(self, dim: int) -> None:
        self.dim, self.has_any, self.want_gradient = dim, True, False

    def take(self, tensor: torch.Tensor, device: Any) -> torch.Tensor:
        """The own rows of a tensor. A rank that has none computes two of others', and keeps nothing of them."""
        counts = [chunk.shape[self.dim] for chunk in tensor.chunk(dist.get_world_size(), self.dim)]
        counts += [0] * (dist.get_world_size() - len(counts))
        self.want_gradient |= tensor.requires_grad
        if counts[dist.get_rank()]:
            return TakeRows.apply(tensor, counts, self.dim).to(device or tensor.device)
        self.has_any = False
        others = tensor.detach().narrow(self.dim, 0, min(2, tensor.shape[self.dim]))
        rows = torch.cat([TakeRows.apply(tensor, counts, self.dim), others], self.dim)
        return rows.to(device or tensor.device)

    def kept(self, output: torch.Tensor) -> torch.Tensor:
        """The rows of an output that are this rank's; a number is a row, as DataParallel makes a vector of them."""
        rows = output if output.dim() else output.reshape(1)
        return rows if self.has_any else rows.narrow(self.dim, 0, 0)

    def join(self, output: torch.Tensor, counts: List[int]) -> torch.Tensor:
        return JoinRows.apply(self.kept(output), counts, self.dim)
