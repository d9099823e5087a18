"""Counts what a step sends and holds: an observer of every operation, so nothing is timed beside it.

Operations below Python are seen, too: collectives of the reducer, copies between DataParallel's devices. A collective's
bytes are those of the larger side of a rank: what it gives or what it gets. How often they cross a link is the
backend's affair (a ring sends 2 (W - 1) / W of an all_reduce's bytes).
"""

from __future__ import annotations

import contextlib
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode

from dp2ddp.costs.clock import Meter
from dp2ddp.costs.figures import Counted, Sent
from dp2ddp.taps import Inside, Taps, in_all_threads

# Any below: functions of torch with whatever they take and return
PlaceOf = Callable[[torch.Tensor], int]
"""The index of the device that a tensor is on; negative: the host."""
HOST = -1
_COPIES = {  # functions of torch.nn.parallel.comm: what they copy, and whether from one device to the others or back
    "broadcast": ("weights", True),
    "broadcast_coalesced": ("weights", True),
    "scatter": ("inputs", True),
    "gather": ("outputs", False),
    "reduce_add": ("gradients", False),
    "reduce_add_coalesced": ("gradients", False),
}
_COPIED = {kind for kind, _ in _COPIES.values()}
_COLLECTIVES = {  # of torch.ops.c10d, as torch.distributed calls them
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


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """At any depth of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(each)


def bytes_of(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


@dataclass
class Tally:
    """What a step had: calls and bytes, by the kind of copy or collective."""

    calls: Counts[str] = field(default_factory=Counts)
    bytes: Counts[str] = field(default_factory=Counts)
    evaluated: bool = False  # whether the wrapped model ran without gradients, too

    def add(self, kind: str, size: int) -> None:
        """Count one call, with its bytes."""
        self.calls[kind] += 1
        self.bytes[kind] += size


def mean(steps: Sequence[Tally]) -> dict[str, Sent]:
    """The mean of several steps: kind -> calls and bytes a step."""
    calls = sum((step.calls for step in steps), Counts[str]())
    sizes = sum((step.bytes for step in steps), Counts[str]())
    return {kind: Sent(calls[kind] / len(steps), sizes[kind] / len(steps)) for kind in sorted(calls)}


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Pushed in each thread of the script; `see` is told of each operation, behind it."""

    def __init__(self, see: Callable[[Any, Any, Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see = see

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with contextlib.suppress(Exception):  # the script never fails because of us
            self._see(func, (*args, kwargs), result)
        return result


@dataclass
class _Storage:
    alive: Any  # StorageWeakRef, which torch does not type; while it is held no other storage has the same address
    place: int
    bytes: int = 0


class Live:
    """Storages of tensors, each once, whoever else refers to it: views, graphs, buckets.

    What a kernel needs on its way and has given back at its end is not seen.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Storage] = {}
        self._bytes: Counts[int] = Counts()
        self._most: Counts[int] = Counts()

    def forget_peaks(self) -> None:
        """Let peaks begin anew at what lives now."""
        self._sweep()
        self._most = Counts(self._bytes)

    def peaks(self, devices: int) -> tuple[int, ...]:
        """The most bytes that lived on each device since the last `forget_peaks`."""
        self.sample()
        return tuple(self._most[device] for device in range(devices))

    def place_of(self, tensor: torch.Tensor) -> int | None:
        """The device that a known tensor's memory lives on; None for an unknown one."""
        known = self._known.get(tensor.untyped_storage()._cdata)
        return known.place if known else None

    def note(self, tensor: torch.Tensor, place: int | None) -> None:
        """The storage of a tensor is there, perhaps of another size than before (resize_).

        `place`: where, if anybody knows; else where it was, or on the host until somebody does.
        """
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)
        if known is None:
            known = _Storage(StorageWeakRef(storage), HOST)  # type: ignore[no-untyped-call]
            self._known[storage._cdata] = known
        self._bytes[known.place] -= known.bytes
        known.place, known.bytes = known.place if place is None else place, storage.nbytes()
        self._bytes[known.place] += known.bytes

    def sample(self) -> None:
        """Look at the peak; only where it may have grown are the dead counted out."""
        if any(count > self._most[place] for place, count in self._bytes.items() if place != HOST):
            self._sweep()
            self._most |= self._bytes

    def _sweep(self) -> None:
        for address, storage in list(self._known.items()):
            if storage.alive.expired():
                del self._known[address]
                self._bytes[storage.place] -= storage.bytes


class Counter(Meter):
    """Counts what steps send and hold."""

    def __init__(
        self, folder: Path, rank: int, warm_up: int, steps: int, devices: int, place_of: PlaceOf | None = None
    ) -> None:
        """`place_of`: of virtual devices, of which there are `devices`; of real ones only what is sent counts."""
        super().__init__(folder, rank, warm_up, steps)
        self._devices = devices
        self._tally, self._counted, self._live = Tally(), list[Tally](), Live()
        self._place_of = place_of or (lambda tensor: tensor.device.index if tensor.is_cuda else HOST)
        self._called = Inside()  # a function of Python is under way, which will say where its results are
        self._copies = Inside()  # a function of torch.nn.parallel.comm is
        taps = Taps()
        for name, (kind, fans_out) in _COPIES.items():
            taps.around(name, partial(self._copying, kind, fans_out), comm)
        in_all_threads(taps, [Operations(self._saw)])
        taps.around("_engine_run_backward", self._backward, torch.autograd)

    # ---- the observers' end

    def saw_rows(self, rows: int, grad: bool) -> None:
        self._tally.evaluated |= not grad

    def called(self, args: Any, call: Callable[[], Any]) -> Any:
        """A function of torch, on virtual devices; `call` does it."""
        self._mark(args)
        with self._called.entered():
            result = call()
        self._mark(result)
        if not self._called.yes and not self._copies.yes:
            self._live.sample()
        return result

    # ---- where tensors are

    def _mark(self, values: Any) -> None:
        """Where tensors are said to be is where their storages are."""
        with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
            for tensor in tensors_in(values):
                self._live.note(tensor, self._place_of(tensor))

    def _backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self._called.entered(False):  # the engine's operations are nobody's results
            return original(*args, **kwargs)

    # ---- what is sent

    def _saw(self, func: Any, given: Any, result: Any) -> None:
        """An operation below Python: a collective, or one whose results lie where what it was given does."""
        if func.namespace == "c10d":
            raw = func._schema.name.partition("::")[2].rstrip("_")
            name = _COLLECTIVES.get(raw, raw)
            sides = [size for each in given[:2] if (size := sum(map(bytes_of, tensors_in(each))))]
            self._tally.add(name, 0 if name in _NO_BYTES else max(sides, default=0))
            return
        places = [place for each in tensors_in(given) if (place := self._live.place_of(each)) is not None]
        place = next((each for each in reversed(places) if each >= 0), next(iter(places), None))
        for tensor in tensors_in(result):
            self._live.note(tensor, place if self._live.place_of(tensor) is None else None)
        if not self._called.yes:
            self._live.sample()

    def _copying(self, kind: str, fans_out: bool, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A function of torch.nn.parallel.comm, through which DataParallel copies everything."""
        if self._copies.yes:  # one of them calls another
            return original(*args, **kwargs)
        with self._copies.entered():
            result = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # the script never fails because of us
            given = args[0] if args else next(iter(kwargs.values()))
            self._note_copies(kind, *((given, result) if fans_out else (result, given)))
            self._mark(result)
        return result

    def _note_copies(self, kind: str, at_home: Any, others: Any) -> None:
        """Between the device of `at_home` and those of the others; what is there already is no copy.

        Inputs that come from the host are copied by either version. In a backward pass the gradients of outputs are
        split, and those of inputs gathered.
        """
        home = self._place_of(next(tensors_in(at_home)))
        sizes = [bytes_of(each) for each in tensors_in(others) if self._place_of(each) != home]
        if sizes and (home >= 0 or kind != "inputs"):
            self._tally.add("gradients" if torch._C._current_graph_task_id() != -1 else kind, sum(sizes))

    # ---- steps

    def _step(self, number: int) -> None:
        step, self._tally = self._tally, Tally()
        if number == self._warm_up:
            self._live.forget_peaks()
        if number > self._warm_up:
            self._counted.append(step)

    def _reading(self) -> Counted:
        sent = mean([step for step in self._counted if not step.evaluated] or self._counted)
        groups = self._first.now.param_groups if self._first.now else []
        return Counted(
            self._taken,
            collectives={kind: each for kind, each in sent.items() if kind not in _COPIED},
            copies={kind: each for kind, each in sent.items() if kind in _COPIED},
            devices=self._live.peaks(self._devices),
            parameters=sum(bytes_of(each) for group in groups for each in group["params"]),
        )
