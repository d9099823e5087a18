"""The plain helpers' counterpart for several backward passes, penalties, GANs, frozen layers, parts that run alone.

Here gradients are summed where autograd meets the parameters, as Megatron-LM does it (arXiv:1909.08053, section 3): two
pairs of functions, each the gradient of the other. So whatever autograd can do is right: gradients of gradients, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from .plain import own_draws


class CopyToRanks(torch.autograd.Function):
    """Tensors that all ranks hold alike, for the rank's own use; gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return SumOverRanks.apply(*gradients)


class SumOverRanks(torch.autograd.Function):
    """The sum over the ranks of what each of them has, in one message for each type of number."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums: dict[int, torch.Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [index for index, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[index].reshape(-1) for index in alike])
            dist.all_reduce(flat)
            parts = flat.split([tensors[index].numel() for index in alike])
            sums |= {index: part.view(tensors[index].shape) for index, part in zip(alike, parts, strict=True)}
        return tuple(sums[index] for index in range(len(tensors)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return CopyToRanks.apply(*gradients)


class TakeRows(torch.autograd.Function):
    """A rank's rows of a tensor that all ranks hold alike; counts are the numbers of rows of each rank."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        ctx.counts = counts
        return whole.split(list(counts))[dist.get_rank()].clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return JoinRows.apply(gradient, ctx.counts), None


class JoinRows(torch.autograd.Function):
    """The rows of all ranks, in rank order."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        ctx.counts = counts
        padded = rows.new_zeros(max(counts), *rows.shape[1:])  # all_gather wants equal shapes
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return TakeRows.apply(gradient, ctx.counts), None


@contextmanager
def standing_for(module: torch.nn.Module, copies: Mapping[Any, Any]) -> Iterator[None]:
    """A block in which copies stand for a module's parameters.

    torch.func.functional_call would leave a copy in a part that the module has by two names (seen in torch 2.15).
    """
    tables = [(part._parameters, dict(part._parameters)) for part in module.modules()]
    for table, own in tables:
        table.update({name: copies.get(p, p) for name, p in own.items() if p is not None})
    try:
        yield
    finally:
        for table, own in tables:
            table.update(own)


class WholeBatchParallel(torch.nn.Module):
    """A model that takes a whole batch and gives its outputs, as DataParallel does; rank r computes chunk r.

    Losses, metrics and decisions behind the forward see all rows, on every rank. Parameters and buffers are always
    the same on all ranks (buffers are those of rank 0, as DataParallel keeps its first replica's), so that parts of
    the model may be run, looked at or copied besides.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        share_tensors([*module.parameters(), *module.buffers()])  # as DistributedDataParallel does

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        world = dist.get_world_size()
        # without arguments, DataParallel runs on one device
        has_rows = dist.get_rank() == 0 or bool(inputs or kwargs)
        device = next((parameter.device for parameter in self.module.parameters()), None)

        def take_rows(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal has_rows
            size = -(-len(tensor) // world)
            counts = [max(0, min(size, len(tensor) - rank * size)) for rank in range(world)]
            rows = TakeRows.apply(tensor, counts)
            if not counts[dist.get_rank()]:  # a rank without rows runs two, and keeps nothing of them
                has_rows, rows = False, torch.cat([rows, tensor[:2].detach()])
            return rows.to(device or rows.device)

        def join_rows(output: torch.Tensor) -> Any:
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            rows = rows if has_rows else rows[:0]
            counts = [torch.empty(1, dtype=torch.int64) for _ in range(world)]
            dist.all_gather(counts, torch.tensor([len(rows)]))
            return JoinRows.apply(rows, [int(count) for count in counts])

        inputs, kwargs = tree_map_only(torch.Tensor, take_rows, (inputs, kwargs))
        if world == 1:
            return self.module(*inputs, **kwargs)
        trained = [p for p in self.module.parameters() if p.requires_grad and torch.is_grad_enabled()]
        copies = CopyToRanks.apply(*trained) if trained else ()
        with own_draws(self, has_rows), standing_for(self.module, dict(zip(trained, copies, strict=True))):
            outputs = self.module(*inputs, **kwargs)
        if any(module.training for module in self.modules()):  # else no buffer has changed
            share_tensors(list(self.module.buffers()))
        return tree_map_only(torch.Tensor, join_rows, outputs)


def share_tensors(tensors: Sequence[torch.Tensor]) -> None:
    """Give rank 0's numbers to all ranks, in one message for each type of number."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor.data for tensor in tensors if tensor.dtype == dtype]  # autograd may have saved them
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        dist.broadcast(flat, 0)
        for tensor, part in zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True):
            tensor.copy_(part.view_as(tensor))


def share_device_stream() -> None:
    """Let all ranks draw alike on their devices, as rank 0 does."""
    if torch.cuda.is_available():
        state = torch.cuda.get_rng_state()
        dist.broadcast(state, 0)
        torch.cuda.set_rng_state(state)


class OneStreamParallel(WholeBatchParallel):
    """For scripts that draw on a device what their models draw there, too: noise beside dropout, parts that run alone.

    Under DataParallel both draw from the first device's stream in turn, so all ranks go on with rank 0's behind each
    forward. The models of another rank draw from a stream of its own, which begins anew with each new seed.
    """

    own_stream: ClassVar[dict[int, torch.Tensor]] = {}  # by its seed; one for all models, as a device has one

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if dist.get_world_size() == 1 or not torch.cuda.is_available():
            return super().forward(*inputs, **kwargs)
        seed = torch.cuda.initial_seed()
        if seed not in self.own_stream:
            self.own_stream.clear()
            self.own_stream[seed] = torch.Generator("cuda").manual_seed(seed).get_state()
        if dist.get_rank() > 0:
            torch.cuda.set_rng_state(self.own_stream[seed])
        outputs = super().forward(*inputs, **kwargs)
        self.own_stream[seed] = torch.cuda.get_rng_state()
        share_device_stream()
        return outputs


def begin_device_streams() -> None:
    """Where no seed is set, each device begins at one of its own: the script at rank 0's, the models at the rank's."""
    if torch.cuda.is_available():
        own_state = torch.cuda.get_rng_state()
        share_device_stream()
        OneStreamParallel.own_stream[torch.cuda.initial_seed()] = own_state


def seed_all_streams(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """torch.manual_seed, where the same seed may be set more than once: the models' own streams begin anew, too."""
    function(*args, **kwargs)
    OneStreamParallel.own_stream.clear()
