"""The steps of a run, as the optimizer that steps first takes them; and the end of a run that was to be measured."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook


class Enough(SystemExit):
    """Ends the script behind its last measured step; a SystemExit, so that `except Exception` lets it pass."""


class Steps:
    """Calls `step(number)`, from 1, behind each step of the optimizer that steps first; ends the script at `last`."""

    def __init__(self, last: int, step: Callable[[int], None]) -> None:
        self._last, self._step = last, step
        self._first: weakref.ref[Any] | None = None
        self.taken = 0
        register_optimizer_step_post_hook(self._after)

    @property
    def optimizer(self) -> Any:
        """The one that stepped first; None before. Any: it is the user's."""
        return self._first and self._first()

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if (
            self._first is None or self._first() is None
        ):  # a script may build another one, and go on with that
            self._first = weakref.ref(optimizer)
        if self._first() is not optimizer:
            return
        self.taken += 1
        self._step(self.taken)
        if self.taken >= self._last:
            raise Enough(0)
