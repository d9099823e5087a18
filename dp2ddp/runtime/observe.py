"""What is followed of a run beside its tensors, for the recorder: rows of forwards, batches of loaders, decisions."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from types import CodeType, FrameType
from typing import Any

import torch
import torch.overrides
import xxhash
from torch.amp.autocast_mode import autocast
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch
from torch.utils.data._utils.pin_memory import pin_memory

from dp2ddp.costs.counter import tensors_in
from dp2ddp.runtime.hang.stacks import users_line
from dp2ddp.runtime.perturb.seeds import DREW, plain_index, stream_digests
from dp2ddp.runtime.virtual_cuda.precision import DoublePrecision
from dp2ddp.taps import Function, Inside, Taps
from dp2ddp.trace.recorder import Recorder
from dp2ddp.trace.records import SCALED, Draw, Forward
from dp2ddp.trace.tensors import as_bytes

# Any throughout: inputs and wrappers, iterators, indices and batches are the user's.

# ---- how many rows each replica of a wrapped forward gets, and which, by a digest of each row's values

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


# ---- batches: the sampler's indices, and where the random streams stood. Whoever loads a batch (the process that
# iterates, or a forked worker of it) tells so with the batch. Workers that are not forked (spawn) tell nothing.


def observe_batches(recorder: Recorder) -> None:
    """Let the recorder see each batch that a DataLoader hands out."""
    # numbers for data sets, by first use; a conversion may build a loader anew for every epoch
    # id -> the data set, which keeps the id taken; its number
    datasets: dict[int, tuple[Any, int]] = {}

    def note(iterator: Any, loaded: _Loaded) -> None:
        dataset = iterator._dataset
        _, number = datasets.setdefault(id(dataset), (dataset, len(datasets)))
        iterable = iterator._dataset_kind == dataloader._DatasetKind.Iterable
        several: Iterable[Any] = loaded.index if iterator._auto_collation else (loaded.index,)
        indices = None if iterable else tuple(map(_plain_index, several))
        recorder.add("draws", Draw(number, indices, loaded.streams))

    def taken(original: Function, iterator: Any) -> Any:
        loaded = original(iterator)
        if not isinstance(loaded, _Loaded):
            return loaded
        recorder.quietly(note, iterator, loaded)
        return loaded.batch

    taps = Taps()
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        taps.around("fetch", _fetched, kind)
    for iterating in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        taps.around("_next_data", taken, iterating)


@dataclass(frozen=True)
class _Loaded:
    """A batch on its way to the script."""

    batch: Any
    index: Any  # as the sampler gave it
    streams: tuple[int, ...]  # digests of those that were drawn from

    def pin_memory(self) -> _Loaded:
        """torch asks things of a kind that it does not know to do so themselves."""
        return replace(self, batch=pin_memory(self.batch))  # type: ignore[no-untyped-call]


def _fetched(original: Function, fetcher: Any, index: Any) -> _Loaded:
    before = _quietly_digested()
    batch = original(fetcher, index)
    drew = vars(fetcher).pop(DREW, None) or [a != b for a, b in zip(before, _quietly_digested(), strict=True)]
    return _Loaded(batch, index, tuple(digest for digest, drawn in zip(before, drew, strict=True) if drawn))


def _plain_index(index: Any) -> int:
    """A sampler's index; of one that is no number, 63 bits of its text."""
    plain = plain_index(index)
    return plain if isinstance(plain, int) else xxhash.xxh3_64_intdigest(repr(plain).encode()) >> 1


def _quietly_digested() -> tuple[int, ...]:
    try:
        return stream_digests()
    except Exception:  # a script may have replaced any of them
        return 0, 0, 0


# ---- decisions between backward and step: clipping, steps that GradScaler skips, schedulers; and which precision is
# asked for: in the float64 stage all numbers are doubles, the wish stays a fact


def observe_decisions(recorder: Recorder) -> None:
    """Let the recorder see clipping, skipped steps and schedulers, and which precision the script asks for."""

    def enter(context: Any) -> None:
        if context._enabled:
            recorder.saw_precision(str(context.fast_dtype).removeprefix("torch."))

    def scale(scaler: Any, outputs: Any) -> None:
        if scaler.is_enabled():
            recorder.add("casts", (SCALED, users_line()))

    taps = Taps()
    taps.before("__enter__", enter, autocast)
    taps.before("scale", scale, torch.amp.GradScaler)
    modes: Any = torch.overrides
    for mode in modes._get_current_function_mode_stack():
        if isinstance(mode, DoublePrecision):
            mode.observers.append(lambda tensor, dtype: recorder.saw_cast(tensor, dtype, users_line()))
    names = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")
    taps.everywhere(torch.nn.utils, {name: partial(_clip, recorder, name) for name in names})
    taps.around("step", partial(_step, recorder), torch.amp.GradScaler)
    _watch_schedulers(recorder, taps)


def _clip(
    recorder: Recorder, name: str, original: Function, parameters: Any, *args: Any, **kwargs: Any
) -> Any:
    given = parameters
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    elif not isinstance(parameters, (list, tuple)):  # it can be walked through once
        parameters = list(parameters)
        given = (each for each in parameters) if isinstance(given, types.GeneratorType) else parameters
    bound = inspect.signature(getattr(torch.nn.utils, name)).bind(given, *args, **kwargs).arguments
    recorder.saw_clipping(parameters, bound.get("max_norm", bound.get("clip_value")))
    result = original(given, *args, **kwargs)
    if name == "clip_grad_norm_":
        recorder.quietly(lambda: recorder.add("clips", float(result)))
    return result


def _step(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """GradScaler's."""
    before = recorder.steps
    result = original(*args, **kwargs)
    if recorder.steps == before:
        recorder.add("skipped")
    return result


def _watch_schedulers(recorder: Recorder, taps: Taps) -> None:
    """What the script asks for, and not what one scheduler asks of another or of itself at its start."""
    inside = Inside()

    def within(original: Function, *args: Any, **kwargs: Any) -> Any:
        with inside.entered():
            return original(*args, **kwargs)

    def step(original: Function, *args: Any, **kwargs: Any) -> Any:
        if not inside.yes:
            recorder.add("scheduled")
        return within(original, *args, **kwargs)

    def watch(kind: Any) -> None:
        if "step" in vars(kind):
            taps.around("step", step, kind)

    base: Any = lr_scheduler.LRScheduler
    for kind in [base, *_subclasses(base)]:
        watch(kind)
    taps.around("_initial_step", within, base)
    base.__init_subclass__ = classmethod(lambda cls: watch(cls))


def _subclasses(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)
