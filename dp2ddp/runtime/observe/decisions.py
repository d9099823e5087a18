"""What the script decides between backward and step: clipping, steps that GradScaler skips, schedulers; and which
precision it asks for, of autocast and by hand: in the float64 stage all numbers are doubles, the wish stays a fact.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.overrides
from torch.amp.autocast_mode import autocast
from torch.optim import lr_scheduler

from dp2ddp.runtime.hang.stacks import users_line
from dp2ddp.runtime.virtual_cuda.precision import DoublePrecision
from dp2ddp.taps import Function, Inside, Taps
from dp2ddp.trace.recorder import Recorder
from dp2ddp.trace.records import SCALED


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
