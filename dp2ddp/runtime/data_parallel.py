"""torch's own nn.DataParallel on virtual devices: only the copies between devices, which torch has in C++ for
CUDA alone, and the turns of the threads are ours.

The functions have the names and contracts of torch.nn.parallel.comm; sources: torch/csrc/cuda/comm.cpp.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.parallel.parallel_apply
from torch._utils import _get_device_index
from torch._utils import _handle_complex as _real_view
from torch.nn.parallel import _functions, comm

from .machine import HOST, Machine
from .patches import Patches
from .places import device_at, place_of, put

# The modules; the attributes of torch.nn.parallel with these names are functions.
_APPLY = sys.modules["torch.nn.parallel.parallel_apply"]
_WRAPPER = sys.modules["torch.nn.parallel.data_parallel"]

Observer = Callable[[int, tuple[Any, ...], dict[str, Any]], None]
"""Called with (device index, positional inputs, keyword inputs) of each replica when a batch was split."""


def install_data_parallel(patches: Patches, machine: Machine, observers: Sequence[Observer] = ()) -> None:
    """`observers` is asked at each split, so that a list may grow and shrink later."""
    patches.set_all(
        comm,
        {
            "broadcast": broadcast,
            "broadcast_coalesced": broadcast_coalesced,
            "scatter": scatter,
            "gather": gather_on(machine),
        },
    )
    # reduce_add and reduce_add_coalesced stay torch's own: without NCCL they add g0 + g1 + ... (comm.py:109).
    patches.set(_APPLY, "threading", SimpleNamespace(Thread=ThreadInTurn, Lock=threading.Lock))
    patches.set(_functions, "_streams", None)  # its list of copy streams has the length of the machine before
    patches.set(_WRAPPER, "scatter_kwargs", _observed(_WRAPPER.scatter_kwargs, observers))


def _observed(scatter_kwargs: Callable[..., Any], observers: Sequence[Observer]) -> Callable[..., Any]:
    """DataParallel and the functional data_parallel split by this name, also for one device."""

    def scatter(inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> Any:
        chunks, keywords = scatter_kwargs(inputs, kwargs, target_gpus, dim)
        for device, chunk, keyword in zip_longest(
            target_gpus[: max(len(chunks), len(keywords))], chunks, keywords
        ):
            for observe in observers:
                observe(_get_device_index(device), chunk or (), keyword or {})
        return chunks, keywords

    return scatter


# ---- copies between devices


def broadcast(
    tensor: torch.Tensor, devices: Any = None, *, out: Sequence[torch.Tensor] | None = None
) -> Sequence[torch.Tensor]:
    tensor = _as_real(tensor)
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )
    if out is not None:
        for target in out:
            target.detach().copy_(tensor.detach())
        return out
    return [copy_to(tensor, _get_device_index(device)) for device in devices]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Any, buffer_size: int = 10485760
) -> list[list[torch.Tensor]]:
    """Device 0 gets the tensors themselves: that is how a replica's in-place changes of buffers survive."""
    devices = [_get_device_index(device) for device in devices]
    tensors = [_as_real(tensor) for tensor in tensors]
    if any(place_of(tensor) != devices[0] for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    return [list(tensors)] + [[copy_to(tensor, device) for tensor in tensors] for device in devices[1:]]


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    view: torch.Tensor = _real_view(tensor)  # type: ignore[no-untyped-call]
    return view


def copy_to(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """The tensor itself if it is on `device` already, else a copy without history."""
    return tensor if place_of(tensor) == device else put(tensor.detach().clone(), device)


def scatter(
    tensor: torch.Tensor,
    devices: Any = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, ...]:
    tensor = _as_real(tensor)
    if out is not None:
        return _scatter_out(tensor, out, dim, devices, chunk_sizes)
    devices = [_get_device_index(device) for device in devices]
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is not None and len(chunk_sizes) != len(devices):
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    sizes = None if chunk_sizes is None else list(chunk_sizes)
    chunks = tensor.chunk(len(devices), dim) if sizes is None else torch.split(tensor, sizes, dim)
    # A chunk that is already where it should be stays a view of the input, as in torch.
    return tuple(chunk.to(device_at(device)) for chunk, device in zip(chunks, devices, strict=False))


def _scatter_out(
    tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, devices: Any, chunk_sizes: Any
) -> tuple[torch.Tensor, ...]:
    for name, given in (("devices", devices), ("chunk_sizes", chunk_sizes)):
        if given is not None:
            raise RuntimeError(
                f"'{name}' must not be specified when 'out' is specified, but got {name}={given}"
            )
    for target, chunk in zip(out, _split_like(tensor, out, dim), strict=True):
        target.copy_(chunk)
    return tuple(out)


def _split_like(whole: torch.Tensor, parts: Sequence[torch.Tensor], dim: int) -> tuple[torch.Tensor, ...]:
    pieces: tuple[torch.Tensor, ...] = torch.split(whole, [part.size(dim) for part in parts], dim)
    return pieces


def gather_on(machine: Machine) -> Callable[..., torch.Tensor]:
    def gather(
        tensors: Sequence[torch.Tensor],
        dim: int = 0,
        destination: Any = None,
        *,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        tensors = [_as_real(tensor) for tensor in tensors]
        if out is not None:
            return torch.cat([put(tensor.detach(), place_of(out)) for tensor in tensors], dim, out=out)
        place = _get_device_index(destination, allow_cpu=True, optional=True)
        return gather_at(tensors, dim, HOST if place == -1 else machine.checked(place))

    return gather


def gather_at(tensors: Sequence[torch.Tensor], dim: int, place: int) -> torch.Tensor:
    """The tensors one behind the other; result has the first one's dtype and a memory format that all
    share.
    """
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    size = _gathered_size(tensors, dim)
    first = tensors[0]
    channels_last = all(_is_channels_last(tensor) for tensor in tensors)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    result = torch.empty(size, dtype=first.dtype, device=device_at(place), memory_format=memory_format)
    for chunk, tensor in zip(_split_like(result, tensors, dim), tensors, strict=True):
        chunk.copy_(tensor)
    return result


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return (
        tensor.dim() == 4
        and not tensor.is_contiguous()
        and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def _gathered_size(tensors: Sequence[torch.Tensor], dim: int) -> list[int]:
    expected = list(tensors[0].shape)
    for index, tensor in enumerate(tensors):
        if place_of(tensor) in (None, HOST):
            raise RuntimeError(
                f"Expected all input tensors to be CUDA tensors, but tensor at index {index} has device {tensor.device}"
            )
        if tensor.dim() != len(expected):
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but tensor at index "
                f"{index} has {tensor.dim()} dimensions, (expected {len(expected)})"
            )
        expected[dim] = tensor.size(dim)
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Input tensor at index {index} has invalid shape {list(tensor.shape)}, but expected {expected}"
            )
    expected[dim] = sum(tensor.size(dim) for tensor in tensors)
    return expected


# ---- the turns of the threads


class ThreadInTurn(threading.Thread):
    """A replica's thread. It is started only when the one before it has ended.

    torch's threads run at the same time, and which of them prints or draws from the host's stream first is
    chance. In turns both are the same in every run, and equal to what ranks do. Nothing is lost: the CPU is
    the same for all. A replica that waits for the others (synchronised batch norm between replicas) gives
    its turn away, or it would wait for ever."""

    def start(self) -> None:
        super().start()
        while self.is_alive():
            self.join(_PATIENCE)
            if self.is_alive() and self._waits_for_another():
                return

    def _waits_for_another(self) -> bool:
        frame = sys._current_frames().get(self.ident or 0)
        if frame is None or frame.f_code.co_filename != threading.__file__:
            return False
        return "join" not in frame.f_code.co_name and "tstate" not in frame.f_code.co_name  # its own threads


_PATIENCE = 0.05  # seconds between two looks at a replica that has not ended
