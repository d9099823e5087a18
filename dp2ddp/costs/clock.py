"""The steps of a run, as the optimizer that steps first takes them; what measures them, and ends such a run.

The clock measures their time and nothing else: a stamp a step, and one on each side of a loader.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, dataloader

from dp2ddp.costs.figures import Counted, Timed, write
from dp2ddp.taps import Inside, Taps


class Enough(SystemExit):
    """Ends the script behind its last measured step; a SystemExit, so that `except Exception` lets it pass."""


class FirstOptimizer:
    """The one that stepped first; a script may build another one, and go on with that. Any: it is the user's."""

    def __init__(self) -> None:
        self._first: weakref.ref[Any] | None = None

    @property
    def now(self) -> Any:
        """None before any has stepped."""
        return self._first and self._first()

    def is_it(self, optimizer: Any) -> bool:
        """Whether this one is, which steps."""
        if self.now is None:
            self._first = weakref.ref(optimizer)
        return self.now is optimizer


class Meter(ABC):
    """Measures the steps of this process: one for each; `finish` writes the reading.

    `warm_up` steps are taken before the first measured one; then `steps` are measured, and the script ends.
    """

    def __init__(self, folder: Path, rank: int, warm_up: int, steps: int) -> None:
        self._folder, self._rank, self._warm_up, self._last = folder, rank, warm_up, warm_up + steps
        self._pid = os.getpid()
        self._first = FirstOptimizer()
        self._taken = 0  # steps of the optimizer that steps first
        register_optimizer_step_post_hook(self._after)

    @abstractmethod
    def saw_rows(self, rows: int, grad: bool) -> None:
        """So many rows are about to be given to the wrapped model by this process."""

    @abstractmethod
    def _step(self, number: int) -> None:
        """A step, counted from 1, is over."""

    @abstractmethod
    def _reading(self) -> Timed | Counted:
        """What was measured."""

    def finish(self) -> None:
        """Write the reading; nothing in a process that was forked."""
        if os.getpid() == self._pid:
            write(self._reading(), self._folder, self._rank)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._first.is_it(optimizer):
            return
        self._taken += 1
        self._step(self._taken)
        if self._taken >= self._last:
            raise Enough(0)


class Clock(Meter):
    """Measures the time of steps."""

    def __init__(self, folder: Path, rank: int, warm_up: int, steps: int, virtual: bool) -> None:
        super().__init__(folder, rank, warm_up, steps)
        self._virtual = virtual
        # at each step's end: the time, and so far the seconds of waiting, rows, evaluations
        self._stamps: list[tuple[float, float, int, int]] = []
        self._waiting = Waiting()
        self._rows = self._evaluations = 0
        self._cpu: list[tuple[float, float]] = []  # at both ends: seconds by the clock, seconds of processors
        self._peaks: tuple[int, tuple[int, ...]] = 0, ()

    def saw_rows(self, rows: int, grad: bool) -> None:
        if grad:
            self._rows += rows
        else:
            self._evaluations += 1

    def _step(self, number: int) -> None:
        if number < self._warm_up:
            return
        if number in (self._warm_up, self._last):
            for device in self._devices:  # kernels are queued: without this the last steps would seem free
                torch.cuda.synchronize(device)
        if number == self._warm_up:
            self._forget_peaks()
            self._cpu.append((time.perf_counter(), _cpu_seconds()))
        self._stamps.append((time.perf_counter(), self._waiting.seconds, self._rows, self._evaluations))
        if number == self._last:
            self._end()

    @property
    def _devices(self) -> range:
        """The real ones that the script sees by now."""
        return range(0 if self._virtual else torch.cuda.device_count())

    def _forget_peaks(self) -> None:
        with contextlib.suppress(OSError):  # not Linux, or not ours to write
            Path("/proc/self/clear_refs").write_text("5")  # the peak of resident memory: proc(5)
        for device in self._devices:
            torch.cuda.reset_peak_memory_stats(device)

    def _end(self) -> None:
        self._cpu.append((time.perf_counter(), _cpu_seconds()))
        self._peaks = _resident_peak(), tuple(map(torch.cuda.max_memory_allocated, self._devices))

    def _reading(self) -> Timed:
        if len(self._cpu) == 1:
            self._end()
        columns: Any = list(zip(*self._stamps, strict=True)) or [()] * 4
        seconds, waiting, rows, evaluations = (
            tuple(after - before for before, after in itertools.pairwise(column)) for column in columns
        )
        cpu = 0.0
        if seconds:
            (began, before), (ended, after) = self._cpu
            # what a script that ended by itself did behind its last step (it saved a model, say) is no part of one
            cpu = (after - before) * min(1.0, sum(seconds) / (ended - began))
        return Timed(
            virtual=self._virtual,
            steps=self._taken,
            seconds=seconds,
            waiting=waiting,
            rows=rows,
            evaluated=tuple(count > 0 for count in evaluations),
            cpu=cpu,
            resident=self._peaks[0],
            devices=self._peaks[1],
        )


class Waiting:
    """Seconds inside the `__next__` of loaders, also of those that a conversion puts in their place."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = Inside()
        self._taps = Taps()
        self._taps.around("__next__", self._timed, dataloader._BaseDataLoaderIter)
        loader: Any = DataLoader
        loader.__init_subclass__ = classmethod(lambda cls, **more: self._follow(cls, more))

    def _timed(self, call: Callable[..., Any], *args: Any) -> Any:
        """A loader within a loader, or one that a worker's thread reads, is no time of the script's twice."""
        if self._inside.yes or threading.current_thread() is not threading.main_thread():
            return call(*args)
        started = time.perf_counter()
        try:
            with self._inside.entered():
                return call(*args)
        finally:
            self.seconds += time.perf_counter() - started

    def _follow(self, cls: Any, more: dict[str, Any]) -> None:
        """A subclass with an `__iter__` of its own: what it returns is timed."""
        above: Any = super(DataLoader, cls)  # Generic's, which keeps its parameters there
        above.__init_subclass__(**more)
        if "__iter__" in vars(cls):
            self._taps.around("__iter__", self._followed, cls)

    def _followed(self, original: Callable[..., Any], loader: Any) -> Any:
        iterator = self._timed(original, loader)  # workers are started here
        is_timed = isinstance(iterator, dataloader._BaseDataLoaderIter)
        return iterator if is_timed else self._in_turn(iterator)

    def _in_turn(self, iterator: Any) -> Iterator[Any]:
        while True:
            try:
                batch = self._timed(next, iterator)
            except StopIteration:
                return
            yield batch


def _cpu_seconds() -> float:
    """Processor seconds of this process and all below it, those included that have ended and were waited for."""
    here, total = psutil.Process(), 0.0
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # of the user and the system, its own and its children's
    return total


def _resident_peak() -> int:
    """Bytes; 0 where nobody tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
