"""torch's own nn.DataParallel on virtual devices: only the copies between devices, which torch has in C++ for
CUDA alone, the turns of the threads, and what they draw on the host are ours.

The functions have the names and contracts of torch.nn.parallel.comm; sources: torch/csrc/cuda/comm.cpp.
"""

from __future__ import annotations

import multiprocessing.synchronize
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.parallel.parallel_apply
from torch._utils import _get_device_index, _handle_complex
from torch.nn.parallel import _functions, comm

from dp2ddp.runtime.virtual_cuda.places import HOST, Machine, device_at, place_of, put
from dp2ddp.runtime.virtual_cuda.random_streams import (
    HostStates,
    default_generator_lock,
    host_states,
    seed_host,
    set_host_states,
)
from dp2ddp.taps import Taps


def install_data_parallel(taps: Taps, machine: Machine) -> None:
    for function in (broadcast, broadcast_coalesced, scatter, gather_on(machine)):
        taps.set(comm, function.__name__, function)
    # reduce_add and reduce_add_coalesced stay torch's own: without NCCL they add g0 + g1 + ... (comm.py:109).
    taps.set(APPLY, "threading", SimpleNamespace(Thread=ThreadInTurn, Lock=threading.Lock))
    taps.set(_functions, "_streams", None)  # its list of copy streams has the length of the machine before
    # Any: modules and their arguments
    taps.around("parallel_apply", _drawing_apart, APPLY, _WRAPPER, torch.nn.parallel)


# ---- copies between devices

_as_real: Callable[[torch.Tensor], torch.Tensor] = _handle_complex


def broadcast(tensor: torch.Tensor, devices: Sequence[Any]) -> list[torch.Tensor]:
    return [copy_to(_as_real(tensor), _get_device_index(device)) for device in devices]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Any, buffer_size: int = 10485760
) -> list[list[torch.Tensor]]:
    """Device 0 gets the tensors themselves: that is how a replica's in-place changes of buffers survive."""
    devices = [_get_device_index(device) for device in devices]
    tensors = [_as_real(tensor) for tensor in tensors]
    if any(place_of(tensor) != devices[0] for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    return [list(tensors)] + [[copy_to(tensor, device) for tensor in tensors] for device in devices[1:]]


def copy_to(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """The tensor itself if it is on `device` already, else a copy without history."""
    if place_of(tensor) == device:
        return tensor
    with torch._C.DisableTorchFunction():  # C++ copies a lazy module's parameter, too
        return put(tensor.detach().clone(), device)


def scatter(
    tensor: torch.Tensor, devices: Sequence[Any], chunk_sizes: Any = None, dim: int = 0, streams: Any = None
) -> tuple[torch.Tensor, ...]:
    tensor = _as_real(tensor)
    chunks = (
        tensor.chunk(len(devices), dim)
        if chunk_sizes is None
        else torch.split(tensor, list(chunk_sizes), dim)
    )
    # A chunk that is already where it should be stays a view of the input, as in torch.
    places = map(device_at, map(_get_device_index, devices))
    return tuple(chunk.to(place) for chunk, place in zip(chunks, places, strict=False))


def gather_on(machine: Machine) -> Callable[..., torch.Tensor]:
    def gather(tensors: Sequence[torch.Tensor], dim: int = 0, destination: Any = None) -> torch.Tensor:
        """The tensors one behind the other; the result has the first one's dtype."""
        place = _get_device_index(destination, allow_cpu=True, optional=True)
        if not tensors:
            raise RuntimeError("Expected at least one tensor to gather from")
        for index, tensor in enumerate(tensors):
            if place_of(tensor) in (None, HOST):
                raise RuntimeError(
                    f"Expected all input tensors to be CUDA tensors, but tensor at index {index} has device "
                    f"{tensor.device}"
                )
            if tensor.dim() != tensors[0].dim():  # torch.cat lets an empty one pass
                raise RuntimeError(
                    "Expected all input tensors to have the same number of dimensions, but tensor at index "
                    f"{index} has {tensor.dim()} dimensions, (expected {tensors[0].dim()})"
                )
        with torch._C.DisableTorchFunction(), torch._C._DisableAutocast():  # which would choose a dtype
            parts = [_as_real(tensor).to(_as_real(tensors[0]).dtype) for tensor in tensors]
            return put(torch.cat(parts, dim), HOST if place == -1 else machine.checked(place))

    return gather


# ---- the turns of the threads


class ThreadInTurn(threading.Thread):
    """A replica's thread. It is started only when the one before it has ended.

    torch's threads run at the same time, and which of them prints or draws from the host's stream first is
    chance. In turns both are the same in every run, and equal to what ranks do. Nothing is lost: the CPU is
    the same for all. A replica that waits for the others (synchronised batch norm between replicas) gives
    its turn away, or it would wait for ever."""

    def start(self) -> None:
        super().start()
        asleep = 0  # looks in a row
        while self.is_alive():
            self.join(_LOOK)
            state = state_of(self)
            asleep = asleep + 1 if state == ASLEEP else 0
            if asleep > _LOOKS or (state not in _AT_WORK and self._waits_for_another()):
                return

    def _waits_for_another(self) -> bool:
        frame = sys._current_frames().get(self.ident or 0)
        if frame is None or frame.f_code.co_filename not in _WAITING:
            return False
        return "join" not in frame.f_code.co_name and "tstate" not in frame.f_code.co_name  # its own threads


def state_of(thread: threading.Thread) -> bytes:
    """What a thread does, as a letter (proc(5)); none where the system does not say."""
    try:
        stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_bytes()
    except OSError:
        return b""
    return stat.rpartition(b") ")[2][:1]  # behind the name, which may have spaces


ASLEEP = b"S"
# it runs, or would if the machine were less busy; it waits for the disk, no other thread
_AT_WORK = (b"R", b"D")
_LOOK = 0.05  # seconds between two looks at a replica that has not ended
_LOOKS = 20  # after so many in which it slept it is taken to wait: locks and sleeping loops leave no frame of their own
_WAITING = (threading.__file__, queue.__file__, multiprocessing.synchronize.__file__)


# ---- what replicas draw on the host: each of them from streams of its own

APPLY = sys.modules["torch.nn.parallel.parallel_apply"]  # torch.nn.parallel has a function of that name
_WRAPPER = sys.modules["torch.nn.parallel.data_parallel"]


def _drawing_apart(apply: Callable[..., Any], modules: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    with ReplicaDraws() as draws:
        return apply([draws.of(r, module) for r, module in enumerate(modules)], *args, **kwargs)


class ReplicaDraws:
    """The streams of the host around one forward of all replicas.

    Replicas are threads, and race for them (torch's default generator, numpy's, Python's): another run may give their
    numbers to other replicas, so that no order is the right one. Here, and in the helpers of converted scripts
    (templates/draws.py), replica r's streams begin at a number of the script's plus r, and nothing of what it draws
    reaches the script; that goes on as if it had drawn that one number, if replica 0 drew any.
    """

    observers: ClassVar[list[Callable[[], None]]] = []  # told of forwards in which several replicas draw

    def __init__(self) -> None:
        generator = torch.default_generator
        self._script = host_states()
        self._seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
        self._after = generator.get_state()
        self._drew: set[int] = set()  # replicas that did
        self._begun = [self._script]  # where they began

    def __enter__(self) -> ReplicaDraws:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """The script goes on."""
        set_host_states(self._script)
        if len(self._drew) > 1:
            for observe in self.observers:
                observe()
        if 0 in self._drew and error is None:
            torch.default_generator.set_state(self._after)

    def of(self, replica: int, module: Callable[..., Any]) -> Callable[..., Any]:
        """A replica's call, with its own streams."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._streams(replica):
                return module(*args, **kwargs)

        return call

    @contextmanager
    def _streams(self, replica: int) -> Iterator[None]:
        with default_generator_lock:  # another replica that has given its turn away may draw on its device
            before = host_states()
            seed_host(self._seed + replica)
            self._begun.append(host_states())
        try:
            yield
        finally:
            with default_generator_lock:
                now = host_states()  # another replica's, where one waits for the other
                if not any(_same(begun, now) for begun in self._begun):
                    self._drew.add(replica)
                set_host_states(before)


def _same(before: HostStates, after: HostStates) -> bool:
    (of_python, of_torch, (_, numbers, *place)), (python, host, (_, others, *there)) = before, after
    same_numpy = place == there and bool((numbers == others).all())
    return of_python == python and torch.equal(of_torch, host) and same_numpy
