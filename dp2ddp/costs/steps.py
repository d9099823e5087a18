"""The steps of a run, as the optimizer that steps first takes them; and the end of a run that was to be measured."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook


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


class Steps:
    """Calls `step(number)`, from 1, behind each step of the optimizer that steps first; ends the script at `last`."""

    def __init__(self, last: int, step: Callable[[int], None]) -> None:
        self._last, self._step = last, step
        self.first = FirstOptimizer()
        self.taken = 0
        register_optimizer_step_post_hook(self._after)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.first.is_it(optimizer):
            return
        self.taken += 1
        self._step(self.taken)
        if self.taken >= self._last:
            raise Enough(0)
