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
from typing import Any, Literal

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode

from dp2ddp.costs.figures import Counted, Sent
from dp2ddp.costs.steps import Meter
from dp2ddp.taps import Inside, Taps, in_all_threads

What = Literal["collectives", "copies"]


@dataclass
class Tally:
    """What a step had: calls and bytes, by what they are and of which kind."""

    calls: Counts[tuple[What, str]] = field(default_factory=Counts)
    bytes: Counts[tuple[What, str]] = field(default_factory=Counts)
    evaluated: bool = False  # whether the wrapped model ran without gradients, too

    def add(self, what: What, kind: str, size: int = 0) -> None:
        """Count one call, with its bytes."""
        self.calls[what, kind] += 1
        self.bytes[what, kind] += size

    def taken(self) -> Tally:
        """What was counted, and begin anew."""
        taken = Tally(**vars(self))
        vars(self).update(vars(Tally()))
        return taken


def mean(steps: Sequence[Tally], what: What) -> dict[str, Sent]:
    """The mean of several steps: kind -> calls and bytes a step."""
    keys = sorted({key for step in steps for key in step.calls if key[0] == what})
    return {
        key[1]: Sent(
            sum(step.calls[key] for step in steps) / len(steps),
            sum(step.bytes[key] for step in steps) / len(steps),
        )
        for key in keys
    }


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


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Pushed in each thread of the script. Any throughout: arguments and results of whatever is called."""

    def __init__(self, tally: Tally, live: Live) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tally, self._live = tally, live
        self.inside = Inside()  # a function of Python is under way, which will say where its results are

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with contextlib.suppress(Exception):  # the script never fails because of us
            if func.namespace == "c10d":
                self._note_collective(func, args)
            else:
                self._note_results(args, kwargs, result)
        return result

    def _note_collective(self, func: Any, args: Any) -> None:
        raw = func._schema.name.partition("::")[2].rstrip("_")
        name = _NAMES.get(raw, raw)
        sides = [size for each in args[:2] if (size := sum(map(bytes_of, tensors_in(each))))]
        self._tally.add("collectives", name, 0 if name in _NO_BYTES else max(sides, default=0))

    def _note_results(self, args: Any, kwargs: Any, result: Any) -> None:
        given = [self._live.place_of(tensor) for tensor in tensors_in((args, kwargs or {}))]
        known = [place for place in given if place is not None]
        place = next((each for each in reversed(known) if each >= 0), known[0] if known else None)
        for tensor in tensors_in(result):
            self._live.note(tensor, place if self._live.place_of(tensor) is None else None)
        if not self.inside.yes:
            self._live.sample()


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


PlaceOf = Callable[[torch.Tensor], int]
"""The index of the device that a tensor is on; negative: the host."""
_COPIES = {  # functions of torch.nn.parallel.comm: what they copy, and whether from one device to the others or back
    "broadcast": ("weights", True),
    "broadcast_coalesced": ("weights", True),
    "scatter": ("inputs", True),
    "gather": ("outputs", False),
    "reduce_add": ("gradients", False),
    "reduce_add_coalesced": ("gradients", False),
}


class Copies:
    """Follows torch.nn.parallel.comm, through which DataParallel copies everything. Any: as they are called."""

    def __init__(self, tally: Tally, place_of: PlaceOf, made: Callable[[Any], None]) -> None:
        """`made` is told of what each of them returns."""
        self._tally, self._place_of, self._made = tally, place_of, made
        self._inside = Inside()
        for name, (kind, fans_out) in _COPIES.items():
            Taps().around(name, partial(self._copying, kind, fans_out), comm)

    @property
    def inside(self) -> bool:
        """Whether one of them is under way in this thread."""
        return self._inside.yes

    def _copying(self, kind: str, fans_out: bool, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.inside:  # one of them calls another
            return original(*args, **kwargs)
        with self._inside.entered():
            result = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # the script never fails because of us
            given = args[0] if args else next(iter(kwargs.values()))
            self._note(kind, *((given, result) if fans_out else (result, given)))
            self._made(result)
        return result

    def _note(self, kind: str, at_home: Any, others: Any) -> None:
        """Between the device of `at_home` and those of the others; what is there already is no copy.

        Inputs that come from the host are copied by either version. In a backward pass the gradients of outputs are
        split, and those of inputs gathered.
        """
        home = self._place_of(next(tensors_in(at_home)))
        sizes = [bytes_of(each) for each in tensors_in(others) if self._place_of(each) != home]
        if sizes and (home >= 0 or kind != "inputs"):
            kind = "gradients" if torch._C._current_graph_task_id() != -1 else kind
            self._tally.add("copies", kind, sum(sizes))


HOST = -1


@dataclass
class _Storage:
    alive: Any  # StorageWeakRef, which torch does not type; while it is held no other storage has the same address
    bytes: int
    place: int


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
        known = self._known.get(_address(tensor))
        return known.place if known else None

    def note(self, tensor: torch.Tensor, place: int | None) -> None:
        """The storage of a tensor is there; `place`: where, if anybody knows (else on the host until somebody does)."""
        address = _address(tensor)
        known = self._known.get(address)
        if known is None:
            storage = tensor.untyped_storage()
            alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
            known = _Storage(alive, storage.nbytes(), HOST if place is None else place)
            self._known[address] = known
            self._bytes[known.place] += known.bytes
            return
        if place is not None and place != known.place:
            self._bytes[known.place] -= known.bytes
            known.place = place
            self._bytes[place] += known.bytes
        if known.bytes != (now := tensor.untyped_storage().nbytes()):  # resize_
            self._bytes[known.place] += now - known.bytes
            known.bytes = now

    def sample(self) -> None:
        """Look at the peak; only where it may have grown are the dead counted out."""
        if all(count <= self._most[place] for place, count in self._bytes.items() if place != HOST):
            return
        self._sweep()
        for place, count in self._bytes.items():
            self._most[place] = max(self._most[place], count)

    def _sweep(self) -> None:
        for address, storage in list(self._known.items()):
            if storage.alive.expired():
                del self._known[address]
                self._bytes[storage.place] -= storage.bytes


def _address(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


# Any below: functions of torch with whatever they take and return


class Counter(Meter):
    """Counts what steps send and hold."""

    def __init__(
        self, folder: Path, rank: int, warm_up: int, steps: int, devices: int, place_of: PlaceOf | None = None
    ) -> None:
        """`place_of`: of virtual devices, of which there are `devices`; of real ones only what is sent counts."""
        super().__init__(folder, rank, warm_up, steps)
        self._devices = devices
        self._tally = Tally()
        self._counted: list[Tally] = []
        self._place_of = place_of or (lambda tensor: tensor.device.index if tensor.is_cuda else HOST)
        self._live = Live()
        self._mode = Operations(self._tally, self._live)
        self._followed = Copies(self._tally, self._place_of, self._mark)
        taps = Taps()
        in_all_threads(taps, [self._mode])
        taps.around("_engine_run_backward", self._backward, torch.autograd)

    # ---- the observers' end

    def saw_rows(self, rows: int, grad: bool) -> None:
        self._tally.evaluated |= not grad

    def called(self, args: Any, call: Callable[[], Any]) -> Any:
        """A function of torch, on virtual devices; `call` does it."""
        self._mark(args)
        with self._mode.inside.entered():
            result = call()
        self._mark(result)
        if not self._mode.inside.yes and not self._followed.inside:
            self._live.sample()
        return result

    # ----

    def _mark(self, values: Any) -> None:
        """Where tensors are said to be is where their storages are."""
        with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
            for tensor in tensors_in(values):
                self._live.note(tensor, self._place_of(tensor))

    def _backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self._mode.inside.entered(False):  # the engine's operations are nobody's results
            return original(*args, **kwargs)

    def _step(self, number: int) -> None:
        step = self._tally.taken()
        if number == self._warm_up:
            self._live.forget_peaks()
        if number > self._warm_up:
            self._counted.append(step)

    def _reading(self) -> Counted:
        kept = [step for step in self._counted if not step.evaluated] or self._counted
        groups = self._first.now.param_groups if self._first.now else []
        return Counted(
            self._taken,
            collectives=mean(kept, "collectives"),
            copies=mean(kept, "copies"),
            devices=self._live.peaks(self._devices),
            parameters=sum(bytes_of(each) for group in groups for each in group["params"]),
        )
