"""What a CUDA program can know of its machine: how many devices there are, and which one is current in this thread; and
where a tensor is: a mark on the tensor object, since all memory here is the CPU's.

A tensor without a mark is at an unknown place, which goes with every other: a missed mismatch is better than a false
one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.utils._device
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # not in its __all__

# A place is a small int: the index of a virtual CUDA device, or HOST. Ints are cheap to compare, copy and store.
HOST = -1


class _Here(threading.local):
    """The current device of this thread, and where a tensor without a mark says it is."""

    device, of_unknown = 0, HOST


class Machine:
    """`count` virtual CUDA devices. The current device and the default device are per thread, as in CUDA and torch."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"a machine needs at least one device, not {count}")
        self.count = count
        # torch.set_default_tensor_type("torch.cuda.FloatTensor"), which is global
        self.cuda_by_default = False
        self._here = _Here()

    @property
    def current(self) -> int:
        """The index of the current device."""
        return self._here.device

    def set_current(self, index: int) -> int:
        """Make device `index` the current one of this thread; returns the one before. Negative: nothing changes."""
        before = self.current
        if index >= 0:
            self._here.device = self.checked(index)
        return before

    @contextmanager
    def at(self, index: int | None) -> Iterator[None]:
        """A device is the current one, as long as this lasts; None: nothing changes."""
        before = self.set_current(-1 if index is None else index)
        try:
            yield
        finally:
            self.set_current(before)

    @property
    def place_of_unknown(self) -> int:
        """Where a tensor without a mark says it is: on the CPU, but in the backward of a Function on its device.

        (What a Function saved of its own outputs comes back from C++ as a new tensor.)
        """
        return self._here.of_unknown

    @contextmanager
    def unknown_at(self, place: int | None) -> Iterator[None]:
        """A tensor that nobody has marked says `place`, as long as this lasts; None: nothing changes."""
        before = self.place_of_unknown
        self._here.of_unknown = before if place is None else place
        try:
            yield
        finally:
            self._here.of_unknown = before

    @property
    def default_place(self) -> int:
        """Where a factory without `device=` puts its tensor."""
        if self.cuda_by_default:
            return self.current
        # Both `with torch.device(...)` and set_default_device push a DeviceContext to the bottom of this thread's stack
        # of modes (torch/utils/_device.py:76); CURRENT_DEVICE alone is global and would reach other threads.
        device = torch.utils._device.CURRENT_DEVICE
        bottom = torch._C._get_function_stack_at(0) if torch._C._len_torch_function_stack() else None
        if device is None or not isinstance(bottom, torch.utils._device.DeviceContext):
            return HOST
        return self.index(device) if device.type == "cuda" else HOST

    def checked(self, index: int) -> int:
        """A device's index, if there is such a device; CUDA's own error if there is none."""
        if not 0 <= index < self.count:
            # c10/cuda/CUDAFunctions.cpp; the words people search for
            raise _DeviceError(_INVALID_ORDINAL)
        return index

    def place(self, device: Any) -> int | None:
        """The place that a `device=` argument means; None for other device types (meta, ...)."""
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, int):
            return self.checked(device)
        if device.type == "cuda":
            return self.current if device.index is None else self.checked(device.index)
        return HOST if device.type == "cpu" else None

    def index(self, device: Any = None) -> int:
        """The device index that the `device` argument of a torch.cuda function means."""
        place = self.current if device is None else self.place(device)
        if place is None or place == HOST:
            raise ValueError(f"Expected a cuda device, but got: {device}")
        return place


_INVALID_ORDINAL = "CUDA error: invalid device ordinal"
_DeviceError: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)  # torch >= 2.8


PLACE = "_dp2ddp_place"
PINNED = "_dp2ddp_pinned"

_CPU = torch.device("cpu")
_Tensor = torch.Tensor
T = TypeVar("T")


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among the arguments of a call; Any: whatever a torch function takes."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (tuple, list)):
            tensors += tensors_in(value)
    return tensors


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
