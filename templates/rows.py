"""Rows of a batch: a rank's own, and those of all."""

import zlib
from typing import Any, List, Sequence, Set

import torch
import torch.distributed as dist

from .broadcast import exchange_numbers, gather_tensors, tell_all
from .draws import go_on_behind
from .replicas import share_tensors, share_written
from .sums import CopyToRanks
from .trees import map_tensors


class OwnRows:
    """Which rows of a batch this rank computes: DataParallel's chunk of its number, of so many as there are replicas.

    A rank that has none computes two of others', and keeps nothing of them.
    """

    def __init__(self, module: torch.nn.Module, has_any: bool, replicas: int, dim: int = 0) -> None:
        self.module, self.parameters = module, [*module.parameters()]
        self.device = self.parameters[0].device if self.parameters else None
        self.versions = [parameter._version for parameter in self.parameters]
        self.replicas, self.dim = min(replicas, dist.get_world_size()), dim
        self.has_any = has_any and dist.get_rank() < replicas or dist.get_rank() == 0
        self.in_place: List[Any] = []  # first rows of which DataParallel makes no copy, with their versions
        self.outputs: List[torch.Tensor] = []  # of this rank
        self.written: Sequence[torch.Tensor] = ()  # parameters, if the forward has written into some
        self.writes_data = False  # of which no version tells

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        chunks, rank = tensor.chunk(self.replicas, self.dim), dist.get_rank()
        self.has_any = self.has_any and rank < len(chunks)
        others = tensor.narrow(self.dim, 0, min(2, tensor.shape[self.dim]))
        own = chunks[rank] if rank < len(chunks) else others
        is_copied = rank > 0 or own.requires_grad and torch.is_grad_enabled()
        own = (own if is_copied else own.detach()).to(self.device or tensor.device, copy=is_copied)
        if own.device == tensor.device and not chunks[0].is_inference():  # one that is has no version
            self.in_place.append((chunks[0], chunks[0]._version))
        return own

    def settle(self, tree: Any, drew: List[int], ties: Sequence[torch.Tensor]) -> Any:
        """What the first replica drew and wrote is everybody's now. Gives the ranks' numbers of rows of each output.

        An output wants a gradient if one replica's does: then all ranks' backward goes to the ties.
        """
        shapes = map_tensors(self.keep, tree, object)  # of a dict: for which keys, in which order
        form = zlib.crc32(repr(shapes).encode())
        counts = [output.shape[self.dim] for output in self.outputs]
        wants = [output.requires_grad for output in self.outputs]
        wrote = self.writes_data or self.versions != [each._version for each in self.parameters]
        wrote_rows = any(first._version != version for first, version in self.in_place)
        buffers = [*self.module.buffers()]
        sizes = hash(tuple([buffer.shape for buffer in buffers]))
        numbers = exchange_numbers([form, wrote_rows, wrote, sizes, *drew, *wants, *counts])
        if any(each[0] != form for each in numbers):
            reason = "outputs of other shapes are not gathered (pad_packed_sequence: total_length)"
            raise RuntimeError(f"{reason}, nor dicts in another order")
        go_on_behind(numbers[0][4 : 4 + len(drew)])
        self.written = self.parameters if any(each[2] for each in numbers) else ()
        share_written(self.written)
        first_rows = [first for first, _ in self.in_place if numbers[0][1]]
        if any(each[3] != sizes for each in numbers):  # a bank grew by more rows on some ranks
            for buffer, size in zip(buffers, tell_all([buffer.shape for buffer in buffers])):
                if buffer.shape != size:
                    buffer.data = buffer.new_empty(size)
        # batch norm writes into running statistics that are parameters, and their version stays
        statistics = [p for p in self.parameters if p.dim() == 1 and not p.requires_grad]
        share_tensors([*buffers, *first_rows, *statistics])
        by_output = [*zip(*numbers)][4 + len(drew) :]
        for place, has_way_back in enumerate(map(any, by_output[: len(wants)])):
            if has_way_back and not wants[place]:
                nothing = [tie.reshape(-1)[:0].abs().sum() for tie in ties if tie.requires_grad]
                self.outputs[place] = self.outputs[place] + sum(nothing)
        return by_output[len(wants) :]

    def keep(self, output: Any) -> Any:
        """Keep this rank's rows of an output. DataParallel cannot gather numbers, arrays and most objects."""
        if isinstance(output, torch.Tensor):
            rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
            self.outputs.append(rows if self.has_any else rows.narrow(self.dim, 0, 0))
            return (*rows.transpose(0, self.dim).shape[1:],)
        if output is not None and not isinstance(output, str):
            raise TypeError(f"outputs are gathered as tensors; a forward gives a {type(output).__name__}")
        return type(output).__name__


def tie_to_all(outputs: List[torch.Tensor], entered: Sequence[torch.Tensor]) -> None:
    """An output leads to what wants a gradient and is no parameter on all ranks if on one: all take part in its sum."""
    if not entered:
        return
    own = [each.grad_fn in graph for graph in map(graph_of, outputs) for each in entered]
    of_all = [*map(any, zip(*exchange_numbers([*own])))]
    for number, (is_own, is_any) in enumerate(zip(own, of_all)):
        if is_any and not is_own:
            place, tie = number // len(entered), entered[number % len(entered)]
            outputs[place] = outputs[place] + tie.reshape(-1)[:0].sum()


def graph_of(output: torch.Tensor) -> Set[Any]:
    """The nodes of autograd that a backward from an output comes to."""
    nodes: Set[Any] = set()
    ahead: List[Any] = [output.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            ahead += [each for each, _ in node.next_functions]
    return nodes


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
