"""The replicas' outputs as one: the rules of torch/nn/parallel/scatter_gather.py, gather."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class TensorMeta:
    """What the other ranks need to know of a tensor in a replica's output."""

    place: int
    shape: torch.Size
    dtype: torch.dtype
    needs_gradient: bool
    order: tuple[int, ...] = ()  # its dimensions, as they lie in memory
    channels_last: bool = False  # the one memory format other than the usual that gather keeps


@dataclass(frozen=True)
class ContainerMeta:
    """A dict, list, tuple or other iterable in a replica's output."""

    kind: type
    keys: tuple[Any, ...]
    items: tuple[Any, ...]


@dataclass(frozen=True)
class OpaqueMeta:
    """Anything else in a replica's output: DataParallel cannot gather it."""

    kind: type


def meta_of(tensor: torch.Tensor, place: int) -> TensorMeta:
    """What the other ranks need to know of the tensor at this place in the list."""
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride()[dim]) if not tensor.is_sparse else ()
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    last = last and not tensor.is_contiguous()
    return TensorMeta(place, tensor.shape, tensor.dtype, tensor.requires_grad, tuple(order), last)


def describe_output(
    output: Any, tensors: list[torch.Tensor]
) -> TensorMeta | ContainerMeta | OpaqueMeta | None:
    """A replica's output as the other ranks may see it; its tensors go to the list."""
    if isinstance(output, torch.Tensor):
        tensors.append(output)
        return meta_of(output, len(tensors) - 1)
    if output is None:
        return None
    if isinstance(output, dict):
        items = tuple(describe_output(item, tensors) for item in output.values())
        return ContainerMeta(type(output), tuple(output), items)
    if isinstance(output, str) or not hasattr(output, "__iter__"):
        return OpaqueMeta(type(output))
    return ContainerMeta(type(output), (), tuple(describe_output(item, tensors) for item in output))


def gather_outputs(outputs: Sequence[Any], join: Callable[[Sequence[TensorMeta]], torch.Tensor]) -> Any:
    """The replicas' described outputs as one, by DataParallel's rules: the first replica sets the form."""
    first = outputs[0]
    if isinstance(first, TensorMeta):
        return join(outputs)
    if first is None:
        return None
    if isinstance(first, OpaqueMeta):
        if first.kind is str:
            return str(map(str, ()))  # what DataParallel makes of it: '<map object at ...>'
        raise TypeError(f"'{first.kind.__name__}' object is not iterable")
    if issubclass(first.kind, dict):
        return first.kind((key, gather_outputs(items, join)) for key, items in by_key(outputs))
    items = (gather_outputs(items, join) for items in zip(*(branch.items for branch in outputs), strict=True))
    return first.kind._make(items) if hasattr(first.kind, "_make") else first.kind(items)


def by_key(branches: Sequence[ContainerMeta]) -> list[tuple[Any, list[Any]]]:
    """The replicas' dicts: each key with the item that each replica has for it."""
    if any(len(branch.keys) != len(branches[0].keys) for branch in branches):
        raise ValueError("All dicts must have the same number of keys")
    dicts = [dict(zip(branch.keys, branch.items, strict=True)) for branch in branches]
    return [(key, [each[key] for each in dicts]) for key in branches[0].keys]


def joinable_shapes(metas: Sequence[TensorMeta], dim: int) -> list[torch.Size]:
    """The shapes of tensors that are to be joined along dim; numbers become vectors of one."""
    shapes = [meta.shape for meta in metas]
    if dim == 0 and not any(shapes):
        warnings.warn(
            "Was asked to gather along dimension 0, but all input tensors were scalars; "
            "will instead unsqueeze and return a vector.",
            stacklevel=2,
        )
        return [torch.Size([1]) for _ in shapes]
    rests = [(meta.dtype, len(meta.shape), meta.shape[:dim], meta.shape[dim:][1:]) for meta in metas]
    if any(rest != rests[0] for rest in rests):
        raise RuntimeError(
            f"Gather got tensors of shapes {[tuple(shape) for shape in shapes]} and types "
            f"{[meta.dtype for meta in metas]}, which cannot be joined along dimension {dim}"
        )
    return shapes
