"""What one replica is called with: the rules of torch/nn/parallel/scatter_gather.py, scatter_kwargs."""

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

# Cuts a tensor: (number of chunks, own chunk).
Take = Callable[[torch.Tensor], tuple[int, torch.Tensor]]


@dataclass(frozen=True)
class Part:
    """What one replica is called with, and how many replicas there are."""

    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]
    replicas: int


def split_arguments(
    inputs: tuple[Any, ...], kwargs: dict[str, Any], rank: int, world: int, take: Take
) -> Part:
    """The arguments of replica number rank, by DataParallel's rules; take(tensor) is (number of chunks, own chunk).

    Tensors are cut into chunks wherever they are in tuples, lists and dicts; anything else goes to every
    replica as it is. Arguments with fewer chunks set the number of replicas, and rows beyond are dropped.
    Keyword arguments alone may call for more replicas, which then get no positional arguments.
    """
    input_chunks, own_inputs = split_argument(inputs, world, take) if inputs else (0, ())
    kwarg_chunks, own_kwargs = split_argument(kwargs, world, take) if kwargs else (0, {})
    if not input_chunks and not kwarg_chunks:
        return Part((), {}, 1)
    if input_chunks < kwarg_chunks:
        return Part(own_inputs if rank < input_chunks else (), own_kwargs, kwarg_chunks)
    if kwarg_chunks < input_chunks and kwarg_chunks >= len(inputs):
        raise AssertionError(
            f"The number of modules {input_chunks} is not equal to "
            f"the number of keyword arguments {kwarg_chunks}"
        )
    return Part(own_inputs, own_kwargs if rank < kwarg_chunks else {}, input_chunks)


def split_argument(value: Any, world: int, take: Take) -> tuple[int, Any]:
    """The number of chunks of an argument, and the own one."""
    if isinstance(value, torch.Tensor):
        return take(value)
    if not isinstance(value, (tuple, list, dict)) or not value:
        return world, value
    items = value.items() if isinstance(value, dict) else value
    counts, own = zip(*(split_argument(item, world, take) for item in items), strict=True)
    kind = type(value)
    return min(counts), own if kind is tuple else kind(*own) if hasattr(value, "_fields") else kind(own)


def chunk_sizes(tensor: torch.Tensor, world: int, dim: int) -> tuple[int, ...]:
    """Rows of each chunk as torch.chunk cuts them, which may be fewer than ranks: 5 over 4 is 2, 2, 1."""
    if not -tensor.dim() <= dim < tensor.dim():
        tensor.chunk(world, dim)  # raises what torch says of that
    return sizes_of_chunks(tensor.shape[dim], world)


@functools.lru_cache(maxsize=1024)
def sizes_of_chunks(rows: int, world: int) -> tuple[int, ...]:
    """Rows of each chunk, of so many in all."""
    return tuple(len(chunk) for chunk in torch.empty(rows, device="meta").chunk(world))


def rank_sizes(tensor: torch.Tensor, world: int, dim: int) -> tuple[int, ...]:
    """Rows of each rank, zeros for ranks that get none: 5 over 4 is 2, 2, 1, 0."""
    return with_empty_ranks(chunk_sizes(tensor, world, dim), world)


def with_empty_ranks(sizes: tuple[int, ...], world: int) -> tuple[int, ...]:
    """Rows of each rank from those of the chunks, which may be fewer."""
    return sizes + (0,) * (world - len(sizes))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that DataParallel finds in an argument, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same with something else in the place of each tensor, in tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        made = copy.copy(value)  # of its own kind: a defaultdict cannot be called with items
        made.update((key, map_tensors(item, change)) for key, item in value.items())
        return made
    if not isinstance(value, (tuple, list)):
        return value
    items = [map_tensors(item, change) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
