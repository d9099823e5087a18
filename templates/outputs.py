"""The replicas' outputs as one: the rules of torch/nn/parallel/scatter_gather.py, gather."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Face:
    """What the other ranks need to know of a tensor in a replica's output."""

    place: int
    shape: torch.Size
    dtype: torch.dtype
    needs_gradient: bool
    order: tuple[int, ...] = ()  # its dimensions, as they lie in memory
    channels_last: bool = False  # the one memory format other than the usual that gather keeps


@dataclass(frozen=True)
class Branch:
    """A dict, list, tuple or other iterable in a replica's output."""

    kind: type
    keys: tuple[Any, ...]
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Opaque:
    """Anything else in a replica's output: DataParallel cannot gather it."""

    kind: type


def face_of(tensor: torch.Tensor, place: int) -> Face:
    """What the other ranks need to know of the tensor at this place in the list."""
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride()[dim]) if not tensor.is_sparse else ()
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    last = last and not tensor.is_contiguous()
    return Face(place, tensor.shape, tensor.dtype, tensor.requires_grad, tuple(order), last)


def describe_output(output: Any, tensors: list[torch.Tensor]) -> Face | Branch | Opaque | None:
    """A replica's output as the other ranks may see it; its tensors go to the list."""
    if isinstance(output, torch.Tensor):
        tensors.append(output)
        return face_of(output, len(tensors) - 1)
    if output is None:
        return None
    if isinstance(output, dict):
        items = tuple(describe_output(item, tensors) for item in output.values())
        return Branch(type(output), tuple(output), items)
    if isinstance(output, str) or not hasattr(output, "__iter__"):
        return Opaque(type(output))
    return Branch(type(output), (), tuple(describe_output(item, tensors) for item in output))


def gather_outputs(found: Sequence[Any], join: Callable[[Sequence[Face]], torch.Tensor]) -> Any:
    """The replicas' described outputs as one, by DataParallel's rules: the first replica sets the form."""
    first = found[0]
    if isinstance(first, Face):
        return join(found)
    if first is None:
        return None
    if isinstance(first, Opaque):
        if first.kind is str:
            return str(map(str, ()))  # what DataParallel makes of it: '<map object at ...>'
        raise TypeError(f"'{first.kind.__name__}' object is not iterable")
    if issubclass(first.kind, dict):
        return first.kind((key, gather_outputs(items, join)) for key, items in by_key(found))
    items = (gather_outputs(items, join) for items in zip(*(branch.items for branch in found), strict=True))
    return first.kind._make(items) if hasattr(first.kind, "_make") else first.kind(items)


def by_key(found: Sequence[Branch]) -> list[tuple[Any, list[Any]]]:
    """The replicas' dicts: each key with the item that each replica has for it."""
    if any(len(branch.keys) != len(found[0].keys) for branch in found):
        raise ValueError("All dicts must have the same number of keys")
    dicts = [dict(zip(branch.keys, branch.items, strict=True)) for branch in found]
    return [(key, [each[key] for each in dicts]) for key in found[0].keys]


def joinable_shapes(faces: Sequence[Face], dim: int) -> list[torch.Size]:
    """The shapes of tensors that are to be joined along dim; numbers become vectors of one."""
    shapes = [face.shape for face in faces]
    if dim == 0 and not any(shapes):
        warnings.warn(
            "Was asked to gather along dimension 0, but all input tensors were scalars; "
            "will instead unsqueeze and return a vector.",
            stacklevel=2,
        )
        return [torch.Size([1]) for _ in shapes]
    rests = [(face.dtype, len(face.shape), face.shape[:dim], face.shape[dim:][1:]) for face in faces]
    if any(rest != rests[0] for rest in rests):
        raise RuntimeError(
            f"Gather got tensors of shapes {[tuple(shape) for shape in shapes]} and types "
            f"{[face.dtype for face in faces]}, which cannot be joined along dimension {dim}"
        )
    return shapes
