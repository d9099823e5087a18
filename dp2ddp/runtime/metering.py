"""Runs that are measured: puts the clock, or the counter, of dp2ddp.costs into a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2ddp.runtime.stage import Stage
from dp2ddp.taps import Taps

if TYPE_CHECKING:
    import torch

    from dp2ddp.costs.counter import Counter


def start_meter(stage: Stage, rank: int, virtual: bool) -> Callable[[], None] | None:
    """Measure this process from now on; returns what writes the reading, None where nothing is to be measured.

    Called behind `set_stage`: what is measured is the script on its devices, and not their making.
    """
    if stage.timed:
        from dp2ddp.costs.clock import Clock
        from dp2ddp.runtime.forward_rows import count_rows

        clock = Clock(Path(stage.timed), rank, stage.warm_up, stage.steps or 1, virtual)
        count_rows(clock.saw_rows)
        return clock.finish
    return _start_counter(stage, rank, virtual).finish if stage.counted else None


def _start_counter(stage: Stage, rank: int, virtual: bool) -> Counter:
    from dp2ddp.costs.counter import Counter
    from dp2ddp.runtime.forward_rows import count_rows

    assert stage.counted is not None
    place_of = _place_on_virtual if virtual else None
    counter = Counter(Path(stage.counted), rank, stage.warm_up, stage.steps or 1, stage.world, place_of)
    count_rows(counter.saw_rows)
    if virtual:
        _show_calls(counter)
    return counter


def _place_on_virtual(tensor: torch.Tensor) -> int:
    """A tensor without a mark is none of a device's."""
    from dp2ddp.runtime.places import HOST, place_of

    place = place_of(tensor)
    return HOST if place is None else place


def _show_calls(counter: Counter) -> None:
    """Each function that virtual devices answer, also within the functions of a tensor's own class."""
    from dp2ddp.runtime.function_mode import VirtualDevices

    def show(original: Any, mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return counter.called(func, args, kwargs, lambda: original(mode, func, types, args, kwargs))

    Taps().around("__torch_function__", show, VirtualDevices)
