"""Modes in every thread: torch keeps its stack of modes per thread, and neither DataParallel's threads nor
others inherit it. (Forked processes do.)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack

from torch.overrides import TorchFunctionMode

from .patches import Patches


def push_in_all_threads(patches: Patches, modes: Sequence[TorchFunctionMode]) -> None:
    """Push the modes in this thread for good, and in each thread that starts from now on, first one lowest."""
    here = _pushed(modes)
    patches.on_undo(here.close)
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def bootstrap(self: threading.Thread) -> None:
        with _pushed(modes):
            original(self)

    patches.set(threading.Thread, "_bootstrap_inner", bootstrap)


def _pushed(modes: Sequence[TorchFunctionMode]) -> ExitStack:
    stack = ExitStack()
    for mode in modes:
        stack.enter_context(mode)
    return stack
