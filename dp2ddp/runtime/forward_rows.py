"""What each wrapped forward is given: how many rows each replica gets, and which (by a digest of each row's values)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from types import CodeType, FrameType
from typing import Any, Protocol

import torch
import xxhash
from torch.nn.parallel import DataParallel, DistributedDataParallel

from dp2ddp.taps import Taps
from dp2ddp.trace.recorder import Recorder
from dp2ddp.trace.records import Forward
from dp2ddp.trace.tensors import as_bytes

# Any: inputs and wrappers are the user's.
Function = Callable[..., Any]


def observe_forwards(recorder: Recorder, begin: Callable[[], None] | None = None) -> None:
    """Tell of each forward: under DataParallel of the rows of each replica, on a rank of its own.

    `begin` is called before each forward in training.
    """
    _install(_RowRecorder(recorder, begin))


class RowCounter(Protocol):
    """Who only wants to know how many rows there are: looking at each costs time (costs/clock.py)."""

    def quietly(self, work: Callable[..., None], *args: Any) -> None: ...
    def saw_module(self, module: torch.nn.Module) -> None: ...
    def saw_rows(self, rows: int, grad: bool) -> None: ...


def count_rows(counter: RowCounter) -> None:
    """Tell of each forward how many rows this process gives it."""
    _install(_RowCounting(counter))


def _install(watch: _ForwardObserver) -> None:
    wrapper: Any = sys.modules[
        "torch.nn.parallel.data_parallel"
    ]  # in torch.nn.parallel that name is a function
    taps = Taps()
    taps.around("scatter", watch.wrapped_module, DataParallel)
    taps.around("scatter_kwargs", watch.chunks, wrapper)
    taps.before("forward", watch.inputs, DistributedDataParallel)
    module: Any = torch.nn.Module
    module.__init_subclass__ = classmethod(partial(watch.helper, taps))


class _ForwardObserver:
    """The functions of torch and of the helpers, with an eye on what they are given."""

    def __init__(self, recorder: Recorder | RowCounter) -> None:
        self._observer = recorder
        self._here = threading.local()  # .module: the one that DataParallel is about to call

    def saw(self, parts: list[tuple[Any, Any] | None], dim: int, module: Any, devices: int = 1) -> None:
        """Inputs of each replica; None for one without rows."""
        raise NotImplementedError

    def wrapped_module(self, original: Function, wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        self._here.module = wrapper.module
        self._observer.saw_module(wrapper.module)
        try:
            return original(wrapper, *args, **kwargs)
        finally:
            self._here.module = None

    def chunks(self, original: Function, inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> Any:
        chunks, keywords = original(inputs, kwargs, target_gpus, dim)
        parts: list[Any] = list(zip_longest(chunks, keywords))
        self.saw(parts, dim, getattr(self._here, "module", None), len(target_gpus))
        return chunks, keywords

    def inputs(self, wrapper: Any, *inputs: Any, **kwargs: Any) -> None:
        """torch's own DistributedDataParallel, in ports and under WholeBatchDDP."""
        self._observer.saw_module(wrapper.module)
        # WholeBatchDDP, whose class says DataParallel, knows of a rank without rows, which computes others'
        forward = type(wrapper).forward
        is_helper = forward.__qualname__ == "WholeBatchDDP.forward"
        rows = _local_of(forward.__code__, "rows") if is_helper else None
        self.saw([(inputs, kwargs) if getattr(rows, "has_any", True) else None], 0, wrapper.module)

    def helper(self, taps: Taps, cls: Any, /, **kwargs: Any) -> None:
        """WholeBatch (templates/model.py), of which a converted script has its own copy."""
        super(torch.nn.Module, cls).__init_subclass__(**kwargs)  # type: ignore[misc]  # cls is one of its kind
        if "run_replica" in vars(cls) and cls.__qualname__ == "WholeBatch":
            taps.before("run_replica", self.replica, cls)

    def replica(self, wrapper: Any, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> None:
        self._observer.saw_module(wrapper.module)
        self.saw([(inputs, kwargs) if has_rows else None], wrapper.dim, wrapper.module)


def _local_of(code: CodeType, name: str) -> Any:
    """A variable of the function with this code that is under way."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code is not code:
        frame = frame.f_back
    return frame and frame.f_locals.get(name)


class _RowRecorder(_ForwardObserver):
    """Tells a recorder of each row."""

    def __init__(self, recorder: Recorder, begin: Callable[[], None] | None) -> None:
        super().__init__(recorder)
        self._recorder = recorder
        self._begin = begin

    def saw(self, parts: list[tuple[Any, Any] | None], dim: int, module: Any, devices: int = 1) -> None:
        grad = torch.is_grad_enabled()
        training = grad and bool(getattr(module, "training", True))
        self._recorder.quietly(self._note, parts, dim, training, devices)
        if training and self._begin:
            self._begin()

    def _note(self, parts: list[tuple[Any, Any] | None], dim: int, training: bool, devices: int) -> None:
        rows = [0 if part is None else _rows(part, dim) for part in parts]
        known = [count for count in rows if count is not None]
        if len(known) < len(rows):  # no tensor with rows among the inputs
            return
        digests, firsts = (
            tuple(
                digest
                for part, count in zip(parts, known, strict=True)
                for digest in row_digests(part, dim, count, most)
            )
            for most in (None, 1)
        )
        several = firsts if firsts != digests else ()
        self._recorder.saw_forward(
            Forward(training, (*known, *[0] * (devices - len(known))), digests, several)
        )


class _RowCounting(_ForwardObserver):
    """Tells how many rows there are."""

    def __init__(self, counter: RowCounter) -> None:
        super().__init__(counter)
        self._counter = counter

    def saw(self, parts: list[tuple[Any, Any] | None], dim: int, module: Any, devices: int = 1) -> None:
        self._counter.quietly(self._note, parts, dim)

    def _note(self, parts: list[tuple[Any, Any] | None], dim: int) -> None:
        rows = sum(_rows(part, dim) or 0 for part in parts if part is not None)
        self._counter.saw_rows(rows, torch.is_grad_enabled())


def row_digests(values: Any, dim: int, rows: int, most: int | None = None) -> Iterator[int]:
    """64 bits of each row, of all tensors that have so many rows: where two are the same, so are the digests.

    `most`: of so many tensors only.
    """
    parts = [_bytes(tensor, dim) for tensor in _tensors(values) if _has(tensor, dim, rows)][:most]
    for row in range(rows):
        digest = 0
        for data, size in parts:
            digest = xxhash.xxh3_64_intdigest(data[row * size : (row + 1) * size], seed=digest)
        yield digest


def _bytes(tensor: torch.Tensor, dim: int) -> tuple[memoryview, int]:
    """The values, row behind row, and the size of a row."""
    data = as_bytes(tensor.movedim(dim, 0))
    return data, len(data) // tensor.shape[dim]


def _has(tensor: torch.Tensor, dim: int, rows: int) -> bool:
    return tensor.dim() > dim and tensor.shape[dim] == rows and tensor.numel() > 0


def _rows(values: Any, dim: int) -> int | None:
    """The size of the first tensor that has dimension `dim`; None if there is none."""
    return next((int(tensor.shape[dim]) for tensor in _tensors(values) if tensor.dim() > dim), None)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict):
        yield from _tensors(tuple(values.values()))
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
