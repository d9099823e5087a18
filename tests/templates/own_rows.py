"""Rows of plain tensors, as autograd sees them: for tests of what scripts do with RowsOnRanks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from dp2ddp.templates.parted import RowsOnRanks, own_numbers


def rows_of(own: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """This rank's rows in, the whole tensor out, as autograd sees it; the gradient is the own rows' part again."""
    return IntoRows.apply(own, tuple(sizes), dim)


def own_rows_of(tensor: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """This rank's rows of a whole tensor, as autograd sees it."""
    return OutOfRows.apply(tensor, tuple(sizes), dim)


class IntoRows(torch.autograd.Function):
    """own rows -> whole; backward: the own rows of the whole gradient."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: tuple[int, ...], dim: int) -> torch.Tensor:
        ctx.layout = sizes, dim
        return RowsOnRanks.of(own.detach(), sizes, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return own_rows_of(gradient, *ctx.layout), None, None


class OutOfRows(torch.autograd.Function):
    """whole -> own rows; backward: the whole gradient, of which the others have the other rows."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, sizes: tuple[int, ...], dim: int) -> torch.Tensor:
        ctx.layout = sizes, dim
        return own_numbers(tensor, sizes, dim).clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return rows_of(gradient, *ctx.layout), None, None
