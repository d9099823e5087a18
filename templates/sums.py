"""Gradients of parameters, summed over the ranks inside the graph."""

from typing import Any, Dict, List, Sequence

import torch
import torch.distributed as dist

from .broadcast import Rank, group_of
from .replicas import ModuleState


class GradientSums:
    """The parameters of one forward on their way into a replica, and their gradients on the way back, summed."""

    def __init__(self, state: ModuleState, wait: bool) -> None:
        trained = [parameter for parameter in state.parameters if parameter.requires_grad]
        sparse = {part.weight for part in state.parts if vars(part).get("sparse") is True}
        self.dense = [parameter for parameter in trained if parameter not in sparse]
        self.tables = [parameter for parameter in trained if parameter in sparse]
        self.state, self.wait = state, wait
        self.begin()

    def begin(self) -> None:
        """Behind a forward, or a backward: another backward may follow."""
        self.versions = [buffer._version for buffer in self.state.buffers()]

    def copies(self) -> Dict[torch.Tensor, torch.Tensor]:
        """What stands for each trained parameter, and for buffers, in the replica of this rank."""
        parameters = [*self.dense, *self.tables]
        copies = CopyToRanks.apply(self, *parameters) if parameters else ()
        buffers = self.state.copy_buffers()
        self.saves_buffers = bool(buffers)
        return {**buffers, **dict(zip(parameters, copies))}

    def finish(self, gradients: Sequence[Any]) -> List[torch.Tensor]:
        """The sums of all gradients; zeros where backward left parameters out, as DataParallel has them."""
        sums = [*self.sum_dense(gradients[: len(self.dense)])]
        sums += map(sum_sparse, gradients[len(self.dense) :], self.tables)
        # a checkpoint may have run its part of the forward again; in turns, rank 0 alone writes into what is its own
        versions = [buffer._version for buffer in self.state.buffers()]
        if self.state.written or self.saves_buffers or self.versions != versions:
            self.state.share()
        self.begin()
        return sums

    def sum_dense(self, gradients: Sequence[Any]) -> Sequence[torch.Tensor]:
        return sum_over_ranks(or_zeros(gradients, self.dense))


def or_zeros(gradients: Sequence[Any], parameters: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Dense gradients, as they can be summed: a sparse one is where there are gradients of gradients."""
    dense = (g.to_dense() if g is not None and g.is_sparse else g for g in gradients)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(dense, parameters)]


def sum_sparse(gradient: Any, table: torch.Tensor) -> torch.Tensor:
    """The sum of what ranks looked up in a table, in rank order, as DataParallel adds; dense if one of them is."""
    parts: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, gradient, Rank.host)
    own = [part.to(table.device) for part in parts if part is not None]
    own = own if all(part.is_sparse for part in own) else [part.to_dense() for part in own]
    return sum(own[1:], own[0]) if own else torch.zeros_like(table).to_sparse()


def sum_over_ranks(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """What all ranks have, summed: in one message for each type of number, on the host and on the device."""
    sums = [*tensors]
    kinds = [(tensor.dtype, tensor.device) for tensor in tensors]
    for kind in dict.fromkeys(kinds):
        places = [place for place, each in enumerate(kinds) if each == kind]
        message = torch.cat([tensors[place].reshape(-1) for place in places])
        dist.all_reduce(message, group=group_of(message))
        for place, part in zip(places, message.split([tensors[place].numel() for place in places])):
            sums[place] = part.view_as(tensors[place])
    return sums


class SumOverRanks(torch.autograd.Function):
    """The sums over the ranks of what each of them has. CopyToRanks is its gradient, and the other way round."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
        return tuple(each.clone() for each in sum_over_ranks(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return CopyToRanks.apply(None, *gradients)


class CopyToRanks(torch.autograd.Function):
    """Tensors that all ranks hold; their gradients are summed over the ranks.

    Of parameters, GradientSums does it: it is made before the forward, so its backward runs last.
    """

    @staticmethod
    def forward(ctx: Any, sums: Any, *tensors: torch.Tensor) -> Any:
        ctx.sums, ctx.tensors = sums, tensors
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.sums is not None and not torch.is_grad_enabled():
            return (None, *ctx.sums.finish(gradients))
        return (None, *SumOverRanks.apply(*or_zeros(gradients, ctx.tensors)))
