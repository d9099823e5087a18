"""Rows of a batch: a rank's own, and those of all."""

import zlib
from typing import Any, Callable, List, Mapping, Sequence, Tuple

import torch
import torch.distributed as dist

from .broadcast import exchange_numbers, gather_tensors, tell_all
from .draws import go_on_behind
from .replicas import ModuleState
from .sums import CopyToRanks
from .trees import map_tensors


class OwnRows:
    """Which rows of a batch this rank computes: DataParallel's chunk of its number, of so many as there are replicas.

    A rank that has none computes the first chunk, whose outputs have the shapes of the others', and keeps no row of it.
    """

    def __init__(self, state: ModuleState, has_any: bool, replicas: int, dim: int = 0) -> None:
        self.state, self.versions = state, [parameter._version for parameter in state.parameters]
        self.device = state.parameters[0].device if state.parameters else None
        self.replicas, self.dim = min(replicas, dist.get_world_size()), dim
        self.has_any = has_any and dist.get_rank() < replicas or dist.get_rank() == 0
        self.in_place: List[Any] = []  # first rows of which DataParallel makes no copy, with their versions
        self.outputs: List[torch.Tensor] = []  # of this rank
        self.writes_data = False  # of which no version tells

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        chunks, rank = tensor.chunk(self.replicas, self.dim), dist.get_rank()
        self.has_any = self.has_any and rank < len(chunks)
        own = chunks[rank if rank < len(chunks) else 0]
        is_copied = rank > 0 or own.requires_grad and torch.is_grad_enabled()
        own = (own if is_copied else own.detach()).to(self.device or tensor.device, copy=is_copied)
        if own.device == tensor.device and not chunks[0].is_inference():  # one that is has no version
            self.in_place.append((chunks[0], chunks[0]._version))
        return own

    def settle(
        self, tree: Any, drew: List[int], copies: Mapping[Any, Any], way_back: Callable[[Any], List[bool]]
    ) -> Tuple[Any, Any]:
        """What the first replica drew and wrote is everybody's now.

        Gives the ranks' numbers of rows of each output, and what `way_back` says of each on the ranks.
        """
        shapes = map_tensors(self.keep, tree, object)  # of a dict: for which keys, in which order
        form = zlib.crc32(repr(shapes).encode())
        counts = [output.shape[self.dim] for output in self.outputs]
        ways = [way for output in self.outputs for way in way_back(output)]
        wrote_weights = self.writes_data or self.versions != [each._version for each in self.state.parameters]
        wrote_rows = any(first._version != version for first, version in self.in_place)
        layouts = self.state.layouts(copies)
        own = [form, wrote_rows, wrote_weights, hash(tuple(layouts)), *drew, *counts, *ways]
        forms, rows_written, weights_written, hashes, *others = zip(*exchange_numbers(own))  # of all ranks
        if len({*forms}) > 1:
            reason = "outputs of other shapes are not gathered (pad_packed_sequence: total_length)"
            raise RuntimeError(f"{reason}, nor dicts in another order")
        go_on_behind([of_ranks[0] for of_ranks in others[: len(drew)]])
        self.state.written = self.state.parameters if any(weights_written) else ()
        if len({*hashes}) > 1:  # a bank grew by more rows on some ranks
            layouts = tell_all(layouts)
        self.state.share(layouts, [first for first, _ in self.in_place if rows_written[0]])
        del others[: len(drew)]
        return others[: len(counts)], others[len(counts) :]

    def keep(self, output: Any) -> Any:
        """Keep this rank's rows of an output. DataParallel cannot gather numbers, arrays and most objects."""
        if isinstance(output, torch.Tensor):
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            self.outputs.append(rows if self.has_any else rows.narrow(self.dim, 0, 0))
            return (*rows.transpose(0, self.dim).shape[1:],)
        if output is not None and not isinstance(output, str):
            raise TypeError(f"outputs are gathered as tensors; a forward gives a {type(output).__name__}")
        return type(output).__name__


def gather_rows(rows: torch.Tensor, counts: Sequence[int], dim: int = 0) -> torch.Tensor:
    """The rows of all ranks along a dimension, in rank order; counts are the numbers of rows of all ranks."""
    rows = rows.transpose(0, dim)
    padded = rows.new_zeros(max(counts), *rows.shape[1:])  # all_gather wants equal shapes
    padded[: len(rows)] = rows
    parts = [part[:count].transpose(0, dim) for part, count in zip(gather_tensors(padded), counts)]
    return torch.cat(parts, dim)


class JoinRows(torch.autograd.Function):
    """The rows of all ranks. All ranks compute the same with them, so a rank's gradient is that of its rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: Sequence[int], dim: int) -> torch.Tensor:
        ctx.counts, ctx.dim = counts, dim
        return gather_rows(rows, counts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (whole,) = CopyToRanks.apply(None, gradient)
        return whole.split(ctx.counts, ctx.dim)[dist.get_rank()], None, None
