"""Runs that are measured: puts the clock, or the counter, of dp2ddp.bench into a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dp2ddp.runtime.stage import Stage, is_virtual


def start_meter(stage: Stage, rank: int) -> Callable[[], None] | None:
    """Measure this process from now on; returns what writes the reading, None where nothing is to be measured.

    Called behind `set_stage`: what is measured is the script on its devices, and not their making.
    """
    if stage.timed:
        from dp2ddp.bench.clock import Clock
        from dp2ddp.runtime.rows import count_rows

        clock = Clock(Path(stage.timed), rank, stage.warm_up, stage.steps or 1, is_virtual(stage))
        count_rows(clock)
        return clock.finish
    if stage.counted:
        from dp2ddp.bench.counter import Counter

        counter = Counter(Path(stage.counted), rank, stage.warm_up, stage.steps or 1, is_virtual(stage))
        return counter.finish
    return None
