"""What each wrapped forward is given: how many rows each replica gets, and which (by a digest of each row's values)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from types import CodeType, FrameType
from typing import Any

import torch
import xxhash
from torch.nn.parallel import DataParallel, DistributedDataParallel

from dp2ddp.costs.counter import tensors_in
from dp2ddp.taps import Taps
from dp2ddp.trace.recorder import Recorder
from dp2ddp.trace.records import Forward
from dp2ddp.trace.tensors import as_bytes

# Any: inputs and wrappers are the user's.
Parts = list[tuple[Any, Any] | None]
"""The inputs of each replica, by position and by name; None for one without rows."""
Saw = Callable[[Parts, int, Any, int], None]
"""Called with the parts of a forward, the dimension of their rows, the module, and the number of devices."""


def observe_forwards(recorder: Recorder, begin: Callable[[], None] | None = None) -> None:
    """Tell of each forward: under DataParallel of the rows of each replica, on a rank of its own.

    `begin` is called before each forward in training.
    """

    def saw(parts: Parts, dim: int, module: Any, devices: int) -> None:
        if module is not None:
            recorder.saw_module(module)
        training = torch.is_grad_enabled() and bool(getattr(module, "training", True))
        recorder.quietly(_note, recorder, parts, dim, training, devices)
        if training and begin:
            begin()

    _follow_forwards(saw)


def count_rows(saw_rows: Callable[[int, bool], None]) -> None:
    """Tell of each forward how many rows this process gives it, and whether with gradients."""

    def saw(parts: Parts, dim: int, module: Any, devices: int) -> None:
        with suppress(Exception):  # the script never fails because of us
            rows = sum(_rows(part, dim) or 0 for part in parts if part is not None)
            saw_rows(rows, torch.is_grad_enabled())

    _follow_forwards(saw)


def _follow_forwards(saw: Saw) -> None:
    """Follow the functions of torch and of the helpers that split inputs, or are given a part."""
    taps = Taps()

    def chunks(parts: Any, inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> None:
        wrapper = _local_of(DataParallel.scatter.__code__, "self")  # none behind the function data_parallel
        saw(list(zip_longest(*parts)), dim, getattr(wrapper, "module", None), len(target_gpus))

    def inputs(wrapper: Any, /, *inputs: Any, **kwargs: Any) -> None:
        """torch's own DistributedDataParallel, in ports and under WholeBatchDDP."""
        # WholeBatchDDP, whose class says DataParallel, knows of a rank without rows, which computes others'
        forward = type(wrapper).forward
        is_helper = forward.__qualname__ == "WholeBatchDDP.forward"
        rows = _local_of(forward.__code__, "rows") if is_helper else None
        saw([(inputs, kwargs) if getattr(rows, "has_any", True) else None], 0, wrapper.module, 1)

    def replica(wrapper: Any, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> None:
        saw([(inputs, kwargs) if has_rows else None], wrapper.dim, wrapper.module, 1)

    def helper(cls: Any, /, **kwargs: Any) -> None:
        """What calls replicas itself (templates/model.py); a converted script has its own copy."""
        super(torch.nn.Module, cls).__init_subclass__(**kwargs)
        if "run_replica" in vars(cls) and cls.__qualname__ == "WholeBatch":
            taps.before("run_replica", replica, cls)

    # in torch.nn.parallel that name is a function
    taps.after("scatter_kwargs", chunks, sys.modules["torch.nn.parallel.data_parallel"])
    taps.before("forward", inputs, DistributedDataParallel)
    module: Any = torch.nn.Module
    module.__init_subclass__ = classmethod(helper)


def _local_of(code: CodeType, name: str) -> Any:
    """A variable of the function with this code that is under way."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code is not code:
        frame = frame.f_back
    return frame and frame.f_locals.get(name)


def _note(recorder: Recorder, parts: Parts, dim: int, training: bool, devices: int) -> None:
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
    forward = Forward(training, (*known, *[0] * (devices - len(known))), digests, several)
    recorder.add("forwards", forward)


def row_digests(values: Any, dim: int, rows: int, most: int | None = None) -> Iterator[int]:
    """64 bits of each row, of all tensors that have so many rows: where two are the same, so are the digests.

    `most`: of so many tensors only.
    """
    parts = [_bytes(tensor, dim) for tensor in tensors_in(values) if _has(tensor, dim, rows)][:most]
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
    return next((int(tensor.shape[dim]) for tensor in tensors_in(values) if tensor.dim() > dim), None)
