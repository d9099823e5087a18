"""The steps of a run, as the optimizer that steps first takes them; what measures them; and the end of such a run."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from dp2ddp.costs.figures import Counted, Timed, write


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
