"""Every operation of torch, also those below Python: collectives of the reducer among them.

A collective's bytes are those of the larger side of a rank: what it gives or what it gets. How often they cross a link
is the backend's affair (a ring sends 2 (W - 1) / W of an all_reduce's bytes).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dp2ddp.costs.live import Live
from dp2ddp.costs.tally import Tally

_NAMES = {  # of torch.ops.c10d, as torch.distributed calls them
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "recv_any_source": "recv",
}
_NO_BYTES = {"barrier", "monitored_barrier"}  # its tensor only says on which device it meets
_READS = {"_local_scalar_dense": "item", "nonzero": "nonzero", "masked_select": "nonzero"}


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Pushed in each thread of the script. Any throughout: arguments and results of whatever is called."""

    def __init__(self, collectives: Tally, live: Live | None, real: RealCopies | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._collectives, self._live, self._real = collectives, live, real
        self.here = _Here()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with contextlib.suppress(Exception):  # the script never fails because of us
            if func.namespace == "c10d":
                self._note_collective(func, args)
            elif self._live is not None:
                self._note_results(args, kwargs, result)
            if self._real is not None:
                self._real.note(func, args, result)
        return result

    def _note_collective(self, func: Any, args: Any) -> None:
        raw = func._schema.name.partition("::")[2].rstrip("_")
        name = _NAMES.get(raw, raw)
        sides = [size for each in args[:2] if (size := sum(map(bytes_of, tensors_in(each))))]
        self._collectives.add(name, 0 if name in _NO_BYTES else max(sides, default=0))

    def _note_results(self, args: Any, kwargs: Any, result: Any) -> None:
        assert self._live is not None
        place = None
        for tensor in tensors_in((args, kwargs or {})):
            known = self._live.place_of(tensor)
            if known is not None and (place is None or known >= 0):
                place = known
        for tensor in tensors_in(result):
            self._live.note(tensor, place if self._live.place_of(tensor) is None else None)
        if not self.here.inside:
            self._live.sample()


class _Here(threading.local):
    """In this thread: whether a function of Python is under way, which will say where its results are."""

    inside = 0

    @contextlib.contextmanager
    def function(self) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """The engine's operations are nobody's results."""
        before, self.inside = self.inside, 0
        try:
            yield
        finally:
            self.inside = before


class RealCopies:
    """Copies between the host and real devices, which every operation shows: its tensors say where they are."""

    def __init__(self, moves: Tally, waits: Tally) -> None:
        self._moves, self._waits = moves, waits

    def note(self, func: Any, args: Any, result: Any) -> None:
        """Look whether an operation copied between devices, and count it."""
        name = func._schema.name.partition("::")[2]
        given = next(iter(tensors_in(args)), None)
        if name == "copy_":
            self._note_copy(args[1], args[0])
        elif name == "_to_copy" and given is not None:
            self._note_copy(given, result)
        elif name in _READS and given is not None and given.is_cuda:
            self._waits.add(_READS[name])

    def _note_copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        if target.is_cuda and not source.is_cuda:
            self._moves.add("moved", bytes_of(target))
        elif source.is_cuda and not target.is_cuda:
            self._waits.add("cpu")


def bytes_of(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """At any depth of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_in(each)
