"""Progress, written down."""

from __future__ import annotations

from collections.abc import Sequence

from dp2ddp.progress import Progress, RunState


class Heard(Progress):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.looks: list[tuple[RunState, ...]] = []

    def begin(self, text: str) -> None:
        self.begun.append(text)

    def look(self, runs: Sequence[RunState]) -> None:
        self.looks.append(tuple(runs))

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
