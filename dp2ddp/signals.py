"""Signals that wait until something is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING_US = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Ctrl-C, a kill and the end of the terminal are answered when the block is over: a second one breaks nothing off.

    A mask would not do: Python answers in the main thread, whichever thread the kernel gave the signal to.
    """
    if threading.current_thread() is not threading.main_thread():  # nothing is raised in any other
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING_US}
    try:
        for number in ENDING_US:
            if before[number] not in (signal.SIG_IGN, None):  # None: not Python's
                signal.signal(number, lambda number, frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
