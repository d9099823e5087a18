"""Tensors that all ranks hold alike, tensors of which each rank has a part, and how autograd goes between."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed

from .parted import join_parts, own_numbers, own_times, plain_numbers
from .process import exchange, own_rank
from .rows import as_bytes

# How a tensor goes from the ranks to the whole: (dim, sizes) if rank r holds sizes[r] of its rows along dim,
# None if each rank holds a copy, whose gradients add up; its shape if these gradients may be sparse.
Layout = tuple[int, tuple[int, ...]] | torch.Size | None


class ScatterToRanks(torch.autograd.Function):
    """What all ranks hold alike becomes each rank's own: its copy, or its rows.

    The backward pass is GatherFromRanks, whose backward pass is ScatterToRanks, and so on: gradients of gradients work.
    The first output, a zero called the link, belongs to every result of the ranks' work. So the backward pass
    comes by here on every rank, once, also on a rank without rows; or else the others would wait for it.
    """

    @staticmethod
    def forward(ctx: Any, layouts: Sequence[Layout], *whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        link = whole[0].new_zeros((), dtype=torch.float32)
        own = (link, *(own_part(tensor, layout) for tensor, layout in zip(whole, layouts, strict=True)))
        ctx.layouts = layouts
        ctx.forms = [(part.shape, part.dtype, part.device) for part in own]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(link)
        ctx.replica_is_done, ctx.early = False, []
        return own

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if gradients[0] is None and ctx.replica_is_done:
            # Not by way of the link: a reentrant checkpoint, which runs parts of the backward pass beforehand, on
            # ranks with rows only. Its gradients wait for the one pass that comes by on all ranks.
            ctx.early.append(gradients)
            return (None,) * len(gradients)
        each = zip(*ctx.early, gradients, strict=True)
        link_gradient, *sums = (
            add_gradients(gradients, *form) for gradients, form in zip(each, ctx.forms, strict=True)
        )
        ctx.early = []
        if torch.is_grad_enabled():  # there will be gradients of gradients
            (link,) = ctx.saved_tensors
            link_gradient = link + link_gradient
        return None, *GatherFromRanks.apply(ctx.layouts, link_gradient, *sums)


class GatherFromRanks(torch.autograd.Function):
    """What each rank holds becomes what all ranks hold alike: the sum of copies, or all rows in order."""

    @staticmethod
    def forward(
        ctx: Any, layouts: Sequence[Layout], link: torch.Tensor, *own: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.layouts = layouts
        pairs = list(zip(own, layouts, strict=True))
        sums = iter(sum_over_ranks([tensor for tensor, layout in pairs if layout is None]))
        return tuple(next(sums) if layout is None else join_ranks(tensor, layout) for tensor, layout in pairs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, *ScatterToRanks.apply(ctx.layouts, *gradients)


class RowsIntoWhole(torch.autograd.Function):
    """GatherFromRanks of rows whose whole is there already; it is in a list, to be no input.

    The gradient of the own rows is multiplied by a factor.
    """

    @staticmethod
    def forward(
        ctx: Any,
        layout: tuple[int, tuple[int, ...]],
        factor: float,
        whole: list[torch.Tensor],
        link: torch.Tensor,
        own: torch.Tensor,
    ) -> torch.Tensor:
        ctx.layout, ctx.factor = layout, factor
        return whole[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        dim, sizes = ctx.layout
        if torch.is_grad_enabled():  # there will be gradients of gradients
            link, own = ScatterToRanks.apply((ctx.layout,), gradient)
            return None, None, None, link, own * ctx.factor
        link = torch.zeros((), device=gradient.device)
        return None, None, None, link, own_times(gradient, sizes, dim, ctx.factor)


def replica_is_done(link: torch.Tensor) -> None:
    """Tell the nodes that a link came through that the replica has run, and what comes next is the backward pass."""
    node: Any = link.grad_fn
    while (
        node is not None
    ):  # links go from one node to the next as first inputs; .to(device) may stand between
        if hasattr(node, "replica_is_done"):
            node.replica_is_done = True
        node = node.next_functions[0][0] if node.next_functions else None


def add_gradients(
    parts: Sequence[torch.Tensor | None], shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The sum of gradients; zeros where there are none."""
    given = [gradient for gradient in parts if gradient is not None]
    if not given:
        return torch.zeros(shape, dtype=dtype, device=device)
    return sum(given[1:], start=given[0])


def own_part(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """This rank's part of a tensor that all ranks hold."""
    if tensor.is_sparse:
        return tensor.clone()
    if layout is None or isinstance(layout, torch.Size):
        return plain_numbers(tensor).view_as(tensor)
    return own_numbers(tensor, layout[1], layout[0]).clone()


def join_ranks(own: torch.Tensor, layout: tuple[int, tuple[int, ...]] | torch.Size) -> torch.Tensor:
    """The ranks' rows in order, or the sum of gradients that are sparse if those of all ranks with rows are."""
    if not isinstance(layout, torch.Size):
        return join_parts(own, layout[1], layout[0])
    numbers = (
        (own._indices().cpu(), own._values().cpu()) if own.is_sparse else own.cpu() if own.any() else None
    )
    shares = [each for each in exchange(numbers) if each is not None]
    parts = [
        torch.sparse_coo_tensor(each[0], each[1], layout) if isinstance(each, tuple) else each
        for each in shares
    ]
    if not all(part.is_sparse for part in parts):
        parts = [part.to_dense() if part.is_sparse else part for part in parts]
    return add_gradients(parts, layout, own.dtype, torch.device("cpu")).to(own.device)


def sum_over_ranks(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each tensor's sum over the ranks, with one all_reduce for all tensors of a kind."""
    sums = [tensor.to_dense() if tensor.is_sparse else tensor for tensor in tensors]
    for places in group_by_kind(sums):
        flat = torch.cat([sums[i].reshape(-1) for i in places])
        torch.distributed.all_reduce(torch.view_as_real(flat) if flat.is_complex() else flat)
        parts = flat.split([sums[i].numel() for i in places])
        for i, part in zip(places, parts, strict=True):
            sums[i] = part.view(sums[i].shape)
    return sums


def group_by_kind(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """The positions of the tensors, grouped by dtype and device."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for i, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(i)
    return list(groups.values())


def copy_from_rank(source: int, tensors: Sequence[torch.Tensor]) -> None:
    """Give these tensors the values they have on one rank, with one broadcast for all tensors of a device."""
    devices: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        devices.setdefault(tensor.device, []).append(tensor.detach())
    for group in devices.values():
        flat = torch.cat([as_bytes(tensor) for tensor in group])
        torch.distributed.broadcast(flat, source)
        if own_rank() != source:
            parts = flat.split([tensor.numel() * tensor.element_size() for tensor in group])
            for tensor, part in zip(group, parts, strict=True):
                own = part if part.storage_offset() % tensor.element_size() == 0 else part.clone()
                tensor.data.copy_(own.view(tensor.dtype).view(tensor.shape))


class ScaleGradient(torch.autograd.Function):
    """x in the forward pass; the gradient times a factor in the backward pass."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return plain_numbers(tensor).view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


class ZeroGradients(torch.autograd.Function):
    """The link in the forward pass; in the backward pass a zero gradient for every parameter.

    DataParallel gives unused parameters zeros, not None (weight decay and momentum act on them), and
    DistributedDataParallel's reducer wants to hear of every parameter on every rank.
    """

    @staticmethod
    def forward(ctx: Any, link: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.forms = [(p.shape, p.dtype, p.device) for p in parameters]
        return link.clone()

    @staticmethod
    def backward(ctx: Any, link_gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zeros = {
            kind: torch.zeros((), dtype=kind[0], device=kind[1]) for kind in {form[1:] for form in ctx.forms}
        }
        return link_gradient, *(zeros[form[1:]].expand(form[0]) for form in ctx.forms)
