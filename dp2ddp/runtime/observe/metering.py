"""Runs that are measured: puts the clock, or the counter, of dp2ddp.costs into a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dp2ddp.costs.clock import Clock
from dp2ddp.costs.counter import Counter
from dp2ddp.runtime.observe.forward_rows import count_rows
from dp2ddp.runtime.stage import Stage
from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import HOST, place_of
from dp2ddp.taps import Taps


def start_meter(stage: Stage, rank: int, virtual: bool) -> Callable[[], None]:
    """Measure this process from now on; returns what writes the reading.

    Called behind `set_stage`: what is measured is the script on its devices, and not their making.
    """
    steps = stage.steps or 1
    meter: Clock | Counter
    if stage.timed:
        meter = Clock(Path(stage.timed), rank, stage.warm_up, steps, virtual)
    else:
        assert stage.counted is not None
        where = _place_on_virtual if virtual else None
        meter = Counter(Path(stage.counted), rank, stage.warm_up, steps, stage.world, where)
        if virtual:
            _show_calls(meter)
    count_rows(meter.saw_rows)
    return meter.finish


def _place_on_virtual(tensor: torch.Tensor) -> int:
    """A tensor without a mark is none of a device's."""
    place = place_of(tensor)
    return HOST if place is None else place


def _show_calls(counter: Counter) -> None:
    """Each function that virtual devices answer, also within the functions of a tensor's own class."""

    def show(original: Any, mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return counter.called(func, args, kwargs, lambda: original(mode, func, types, args, kwargs))

    Taps().around("__torch_function__", show, VirtualDevices)
