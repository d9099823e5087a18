"""What is told on the way of something that takes a while, for whoever listens: a terminal, a log, nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RunState:
    """How far a run is."""

    name: str  # "DataParallel, float64"
    begun: bool  # whether the script itself runs on all ranks; before, torch is being imported
    ended: bool
    steps: int  # of the optimizer, on the rank that has taken the fewest
    expected: int | None  # steps; None: nobody knows
    seconds: float  # since it was started


class Progress:
    """Tells nobody; a class of your own overrides what it wants to hear. Calls come from one thread."""

    def begin(self, text: str) -> None:
        """From now on this is done, until the next call."""

    def look(self, runs: Sequence[RunState]) -> None:
        """How far the runs are that were started together; comes several times a second."""

    def say(self, text: str) -> None:
        """Something is over, in a line."""

    def warn(self, text: str) -> None:
        """Something had to be mended, or is not as it seems, in a line."""


SILENT = Progress()


class Within(Progress):
    """Tells another one, with words in front of what begins."""

    def __init__(self, progress: Progress, where: str) -> None:
        self._progress, self._where = progress, where
        progress.begin(where)

    def begin(self, text: str) -> None:
        self._progress.begin(f"{self._where}: {text}")

    def look(self, runs: Sequence[RunState]) -> None:
        self._progress.look(runs)

    def say(self, text: str) -> None:
        self._progress.say(text)

    def warn(self, text: str) -> None:
        self._progress.warn(text)


def clock(seconds: float) -> str:
    """Minutes and seconds, 1:05; hours before them where there are any."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
