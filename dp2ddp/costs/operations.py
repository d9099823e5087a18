"""Every operation of torch, also those below Python: collectives of the reducer, copies between DataParallel's devices.

A collective's bytes are those of the larger side of a rank: what it gives or what it gets. How often they cross a link
is the backend's affair (a ring sends 2 (W - 1) / W of an all_reduce's bytes).
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode

from dp2ddp.costs.live import Live
from dp2ddp.costs.readings import Sent
from dp2ddp.taps import Inside, Taps


class Tally:
    """Calls and bytes of each kind, so far."""

    def __init__(self) -> None:
        self.calls: Counts[str] = Counts()
        self.bytes: Counts[str] = Counts()

    def add(self, kind: str, size: int = 0) -> None:
        """Count one call of a kind, with its bytes."""
        self.calls[kind] += 1
        self.bytes[kind] += size

    def taken(self) -> Tally:
        """What was counted, and begin anew."""
        tally = Tally()
        tally.calls, tally.bytes = self.calls, self.bytes
        self.calls, self.bytes = Counts(), Counts()
        return tally


def mean(tallies: Sequence[Tally]) -> dict[str, Sent]:
    """The mean of several steps: kind -> calls and bytes a step."""
    kinds = sorted({kind for tally in tallies for kind in tally.calls})
    count = len(tallies)
    return {
        kind: Sent(
            sum(tally.calls[kind] for tally in tallies) / count,
            sum(tally.bytes[kind] for tally in tallies) / count,
        )
        for kind in kinds
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


PlaceOf = Callable[[torch.Tensor], int]
"""The index of the device that a tensor is on; negative: the host."""
# Any throughout: functions of torch.nn.parallel.comm


class Copies:
    """Follows torch.nn.parallel.comm, through which DataParallel copies everything."""

    def __init__(self, copies: Tally, moves: Tally, place_of: PlaceOf, made: Callable[[Any], None]) -> None:
        """`made` is told of what each of them returns."""
        self._copies, self._moves, self._place_of, self._made = copies, moves, place_of, made
        self._inside = Inside()
        for name, note in (
            ("broadcast", self._note_weights),
            ("broadcast_coalesced", self._note_weights),
            ("scatter", self._note_inputs),
            ("gather", self._note_outputs),
            ("reduce_add", self._note_gradients),
            ("reduce_add_coalesced", self._note_gradients),
        ):
            Taps().around(name, partial(self._copying, note), comm)

    @property
    def inside(self) -> bool:
        """Whether one of them is under way in this thread."""
        return self._inside.yes

    def _copying(self, note: Callable[[Any, Any], None], original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.inside:  # one of them calls another
            return original(*args, **kwargs)
        with self._inside.entered():
            result = original(*args, **kwargs)
        with contextlib.suppress(Exception):  # the script never fails because of us
            note((*args, *kwargs.values()), result)
            self._made(result)
        return result

    def _note_weights(self, given: Any, result: Any) -> None:
        home = self._place_of(next(tensors_in(given)))
        self._add("weights", (each for each in tensors_in(result) if self._place_of(each) != home))

    def _note_inputs(self, given: Any, result: Any) -> None:
        home = self._place_of(given[0])
        if home < 0:
            for each in tensors_in(result):
                self._moves.add("moved", bytes_of(each))
        else:
            self._add("inputs", (each for each in tensors_in(result) if self._place_of(each) != home))

    def _note_outputs(self, given: Any, result: Any) -> None:
        home = self._place_of(result)
        self._add("outputs", (each for each in tensors_in(given[0]) if self._place_of(each) != home))

    def _note_gradients(self, given: Any, result: Any) -> None:
        """Those of the first device, where they are added up, stay where they are."""
        others = given[0][1:] if len(given[0]) > 1 else ()
        self._add("gradients", tensors_in(list(others)))

    def _add(self, kind: str, copied: Iterable[torch.Tensor]) -> None:
        """What is split or gathered in a backward pass are the gradients of outputs and inputs."""
        sizes = [bytes_of(each) for each in copied]
        if sizes:
            self._copies.add("gradients" if torch._C._current_graph_task_id() != -1 else kind, sum(sizes))
