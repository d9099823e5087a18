"""What one rank has, on all of them, with its gradients."""

from typing import Any, Sequence

import torch
import torch.distributed as dist

from .broadcast import group_of, tell_all
from .trees import map_tensors, tensors_of


def share_tree(tree: Any, owner: int, ties: Sequence[torch.Tensor]) -> Any:
    """The tree of one rank on all of them; ties are what all ranks go back to in backward, as the owner does."""
    devices = [tensor.device.type for tensor in tensors_of(tree)]
    forms, kinds = tell_all(
        (map_tensors(form_of, tree), devices) if owner == dist.get_rank() else None, owner
    )
    own, kind = tensors_of(tree), iter(kinds)

    def share(form: torch.Tensor) -> torch.Tensor:
        device = next(kind)
        tensor = next(own) if owner == dist.get_rank() else torch.empty_like(form, device=device)
        return FromRank.apply(owner, form.requires_grad, tensor, *ties)

    return map_tensors(share, forms)


def form_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without its numbers."""
    return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)


class FromRank(torch.autograd.Function):
    """A tensor of one rank, on all ranks."""

    @staticmethod
    def forward(
        ctx: Any, owner: int, wants_gradient: bool, tensor: torch.Tensor, *ties: torch.Tensor
    ) -> torch.Tensor:
        ctx.is_own, ctx.others = owner == dist.get_rank(), [None for _ in ties]
        whole = tensor.detach().clone().contiguous()
        dist.broadcast(whole, owner, group_of(whole))
        if not wants_gradient:
            ctx.mark_non_differentiable(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return (None, None, gradient if ctx.is_own else None, *ctx.others)
