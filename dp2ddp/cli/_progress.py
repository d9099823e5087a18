"""What a command shows on stderr while it works: on a terminal how far it is, elsewhere plain lines."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dp2ddp.cli import warn
from dp2ddp.progress import Progress, RunState, clock

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

DELAY = 1.0  # seconds: what is over by then shows nothing
_REFRESHED = 5  # pictures a second
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
    rest: str = ""  # how long it may take


def line_of(run: RunState, usual: int | None) -> RunLine:
    """What is shown of a run now; `usual`: the steps of those that are over."""
    expected = run.expected or usual
    if run.ended:
        return RunLine(run.name, 1.0, _steps(run.steps, None), f"took {clock(run.seconds)}")
    if not run.begun:
        return RunLine(run.name, 0.0, "starting")
    if expected is None or run.steps > expected:
        return RunLine(run.name, None, _steps(run.steps, None))
    if run.steps == expected:
        return RunLine(run.name, 1.0, _steps(run.steps, expected), "ending")
    seconds = run.seconds * (expected / run.steps - 1) if run.steps else None
    rest = "" if seconds is None else f"about {clock(seconds)} left"
    return RunLine(run.name, run.steps / expected, _steps(run.steps, expected), rest)


def _steps(taken: int, expected: int | None) -> str:
    of = "" if expected is None else f" of {expected}"
    return f"{taken}{of} step{'' if (expected or taken) == 1 else 's'}"


class OnTerminal(Progress):
    """What goes on, and a line for each run, drawn anew several times a second by rich's own thread.

    Lines of what is over stand above it. Nothing is drawn, and rich not imported, before `delay` seconds are over.
    """

    def __init__(self, delay: float) -> None:
        self._text, self._runs = "", tuple[RunState, ...]()
        self._usual: int | None = None
        self._started = time.monotonic()
        self._live: Live | None = None
        self._lock = threading.Lock()  # lines come from other threads than the one that begins to draw
        self._beginning = threading.Timer(delay, self._draw)
        self._beginning.daemon = True
        self._beginning.start()

    def begin(self, text: str) -> None:
        self._text, self._runs = text, ()

    def look(self, runs: Sequence[RunState]) -> None:
        self._runs = tuple(runs)
        self._usual = max([self._usual or 0, *(run.steps for run in runs if run.ended)]) or None

    def say(self, text: str) -> None:
        with self._lock:
            if self._live is None:
                click.echo(text, err=True)
            else:
                self._live.console.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self.say(f"dp2ddp: {text}")

    def close(self) -> None:
        """Take away what is drawn."""
        self._beginning.cancel()
        self._beginning.join()
        if self._live:
            self._live.stop()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            self._live = Live(
                console=Console(stderr=True, highlight=False),
                get_renderable=self._picture,
                refresh_per_second=_REFRESHED,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _picture(self) -> RenderableType:
        rows = [line_of(run, self._usual) for run in self._runs]
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
