"""What a command shows on stderr while it works: on a terminal how far it is, elsewhere plain lines."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from dp2ddp.cli import warn
from dp2ddp.progress import Progress, RunState, clock

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

DELAY = 1.0  # seconds: what is over by then shows nothing
_REFRESH = 0.2  # seconds between two pictures
_BAR = 24  # characters


class Lines(Progress):
    """A plain line for what is over."""

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def warn(self, text: str) -> None:
        warn(text)


@contextmanager
def shown() -> Iterator[Progress]:
    """Show on stderr what goes on within; it is gone when the results are printed."""
    if not is_terminal():
        yield Lines()
        return
    on_terminal = OnTerminal(DELAY)
    try:
        yield on_terminal
    finally:
        on_terminal.close()


def is_terminal() -> bool:
    """Whether somebody sees stderr, on a terminal that can show more than lines."""
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    )


@dataclass(frozen=True)
class RunLine:
    """A run as it is shown."""

    name: str
    share: float | None  # done of what is expected; None: nobody knows
    steps: str
    rest: str  # how long it may take


@dataclass
class Estimates:
    """What is known of the runs so far, for guesses about the rest; `row` says what is shown of one."""

    usual: int | None = None  # steps of the runs that are over
    _first: dict[str, tuple[float, int]] = field(
        default_factory=dict
    )  # name -> seconds, steps when it was first seen

    def begin(self) -> None:
        """Other runs come."""
        self._first.clear()

    def row(self, run: RunState) -> RunLine:
        """What is shown of a run now."""
        if run.ended:
            self.usual = max(run.steps, self.usual or 0) or None
            return RunLine(run.name, 1.0, _steps(run.steps, None), f"took {clock(run.seconds)}")
        if not run.begun:
            return RunLine(run.name, 0.0, "starting", "")
        if run.steps:
            self._first.setdefault(run.name, (run.seconds, run.steps))
        expected = run.expected or self.usual
        if expected is None or run.steps > expected:
            return RunLine(run.name, None, _steps(run.steps, None), "")
        if run.steps == expected:
            return RunLine(run.name, 1.0, _steps(run.steps, expected), "ending")
        left = self._seconds_left(run, expected)
        rest = "" if left is None else f"about {clock(left)} left"
        return RunLine(run.name, run.steps / expected, _steps(run.steps, expected), rest)

    def _seconds_left(self, run: RunState, expected: int) -> float | None:
        """As many seconds for each step that is left as for each of those that were seen."""
        seconds, steps = self._first.get(run.name, (run.seconds, run.steps))
        if run.steps <= steps:
            return None
        return (expected - run.steps) * (run.seconds - seconds) / (run.steps - steps)


def _steps(taken: int, expected: int | None) -> str:
    of = "" if expected is None else f" of {expected}"
    return f"{taken}{of} step{'' if (expected or taken) == 1 else 's'}"


class OnTerminal(Progress):
    """What goes on, and a line for each run, drawn anew several times a second by a thread of its own.

    Lines of what is over stand above it. Nothing is drawn, and rich not imported, before `delay` seconds are over.
    """

    def __init__(self, delay: float) -> None:
        self._text, self._runs = "", tuple[RunState, ...]()
        self._started = time.monotonic()
        self._estimates = Estimates()
        self._say_line: Callable[[str], None] = lambda text: click.echo(text, err=True)
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._draw, args=(delay,), daemon=True)
        self._thread.start()

    def begin(self, text: str) -> None:
        with self._lock:
            self._text, self._runs = text, ()
            self._estimates.begin()

    def look(self, runs: Sequence[RunState]) -> None:
        with self._lock:
            self._runs = tuple(runs)

    def say(self, text: str) -> None:
        with self._lock:
            self._say_line(text)

    def warn(self, text: str) -> None:
        self.say(f"dp2ddp: {text}")

    def close(self) -> None:
        """Take away what is drawn."""
        self._closed.set()
        self._thread.join()

    def _draw(self, delay: float) -> None:
        if self._closed.wait(delay):
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False)
        options = {"redirect_stdout": False, "redirect_stderr": False}
        with Live(self._picture(), console=console, auto_refresh=False, transient=True, **options) as live:  # type: ignore[arg-type]  # flags
            with self._lock:
                self._say_line = lambda text: _print(console, text)
            while not self._closed.wait(_REFRESH):
                live.update(self._picture(), refresh=True)
            with self._lock:
                self._say_line = lambda text: click.echo(text, err=True)

    def _picture(self) -> RenderableType:
        with self._lock:
            rows = [self._estimates.row(run) for run in self._runs]
            return picture(self._text, time.monotonic() - self._started, rows)


def picture(text: str, seconds: float, rows: Sequence[RunLine]) -> RenderableType:
    """What is shown at a moment: what goes on, since when, and a line for each run."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    # Not rich.progress: there `update(total=None)` keeps the old total, and no time is left to tell where a step takes
    # longer than 30 s.
    table = Table.grid(padding=(0, 2))
    for row in rows:
        bar = ProgressBar(1.0 if row.share is not None else None, row.share or 0.0, width=_BAR)
        table.add_row(f"  {row.name}", bar, row.steps, row.rest)
    return Group(Text(f"{text}  {clock(seconds)}", no_wrap=True, overflow="ellipsis"), table)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
