"""Where a tensor is: a mark on the tensor object, since all memory here is the CPU's.

A tensor without a mark is at an unknown place, which goes with every other: a missed mismatch is better
than a false one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # not in its __all__

from .machine import HOST

PLACE = "_dp2ddp_place"
PINNED = "_dp2ddp_pinned"

_CPU = torch.device("cpu")
_Tensor = torch.Tensor
T = TypeVar("T")


def place_of(tensor: object) -> int | None:
    """The device that a tensor is marked as being on; HOST for the CPU, None if it has no mark."""
    return getattr(tensor, PLACE, None)


def is_on_device(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on a virtual device."""
    place = place_of(tensor)
    return place is not None and place >= 0


def device_at(place: int | None) -> torch.device:
    """A place as a torch.device."""
    return _CPU if place is None or place == HOST else torch.device("cuda", place)


def put(value: T, place: int | None) -> T:
    """Mark a tensor, or every tensor of a tuple or list (of tuples or lists), as being at `place`."""
    if place is None:
        return value
    if isinstance(value, _Tensor):
        setattr(value, PLACE, place)
    elif isinstance(value, (tuple, list)):
        for item in value:
            put(item, place)
    return value


def put_missing(value: T, place: int | None) -> T:
    """Like `put`, but leaves the tensors that already are somewhere."""
    if isinstance(value, _Tensor):
        return value if place_of(value) is not None else put(value, place)
    if isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            put_missing(item, place)
    return value


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among the arguments of a call; Any: whatever a torch function takes."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, _Tensor):
            tensors.append(value)
        elif isinstance(value, (tuple, list)):
            tensors += tensors_in(value)
    return tensors


def common_place(tensors: Sequence[torch.Tensor]) -> int | None:
    """Where the result of a function of these tensors is: where the first one with dimensions is.

    torch lets a 0-dim CPU tensor meet any device (c10 TensorIterator), so these only count when nothing else does.
    """
    places = [place for tensor in tensors if (place := place_of(tensor)) is not None]
    if not places or places.count(places[0]) == len(places):
        return places[0] if places else None
    with_dimensions = (place_of(tensor) for tensor in tensors if has_dimensions(tensor))
    first = next((place for place in with_dimensions if place is not None), None)
    return max(places) if first is None else first


def has_dimensions(tensor: torch.Tensor) -> bool:
    # a lazy module's parameter has no shape yet
    return isinstance(tensor, UninitializedTensorMixin) or tensor.dim() > 0
