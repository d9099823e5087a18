"""What the script decides between backward and step: clipping, steps that GradScaler skips, schedulers."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import lr_scheduler

from dp2ddp.runtime.patches import replace_everywhere
from dp2ddp.trace.recorder import Recorder

# Any throughout: arguments and results of torch's functions.
Function = Callable[..., Any]


def observe_decisions(recorder: Recorder) -> None:
    """Let the recorder see clipping, skipped steps and schedulers."""
    clippings = {
        name: (original, _clipping(original, recorder))
        for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")
        if (original := getattr(torch.nn.utils, name, None)) is not None  # the last is younger than torch 2.4
    }
    replace_everywhere(clippings)
    scaler: Any = torch.amp.GradScaler
    scaler.step = _scaled(scaler.step, recorder)
    _Schedulers(recorder).watch()


def _clipping(original: Function, recorder: Recorder) -> Function:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = parameters
        if isinstance(parameters, torch.Tensor):
            parameters = [parameters]
        elif not isinstance(parameters, (list, tuple)):  # it can be walked through once
            parameters = list(parameters)
            given = (each for each in parameters) if isinstance(given, types.GeneratorType) else parameters
        bound = signature.bind(given, *args, **kwargs).arguments
        recorder.saw_clipping(parameters, bound.get("max_norm", bound.get("clip_value")))
        result = original(given, *args, **kwargs)
        if original.__name__ == "clip_grad_norm_":
            recorder.saw_norm(result)
        return result

    return clip


def _scaled(original: Function, recorder: Recorder) -> Function:
    @functools.wraps(original)
    def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = recorder.steps
        result = original(scaler, optimizer, *args, **kwargs)
        if recorder.steps == before:
            recorder.saw_skipped()
        return result

    return step


class _Schedulers:
    """Counts what the script asks for, and not what one scheduler asks of another or of itself at its start."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._inside = threading.local()

    def watch(self) -> None:
        base: Any = lr_scheduler.LRScheduler
        for kind in [base, *_subclasses(base)]:
            self._watch(kind)
        base._initial_step = self._within(base._initial_step)
        base.__init_subclass__ = classmethod(lambda cls: self._watch(cls))

    def _watch(self, kind: Any) -> None:
        if "step" in vars(kind):
            kind.step = self._counted(kind.step)

    def _counted(self, original: Function) -> Function:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            if not getattr(self._inside, "yes", False):
                self._recorder.saw_scheduled()
            with self._entered():
                return original(*args, **kwargs)

        return step

    def _within(self, original: Function) -> Function:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._entered():
                return original(*args, **kwargs)

        return call

    @contextmanager
    def _entered(self) -> Iterator[None]:
        before = getattr(self._inside, "yes", False)
        self._inside.yes = True
        try:
            yield
        finally:
            self._inside.yes = before


def _subclasses(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)
