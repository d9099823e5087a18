"""What the check says of a file, as plain data: it goes from process to process, and into reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from dp2ddp.source.files import CellPlace


class Level(str, Enum):
    """How much a finding matters; only a note leaves the exit code at 0."""

    ERROR = "error"  # it fails, hangs, or trains another model
    WARNING = "warning"  # it costs time, or gives numbers that mislead
    NOTE = "note"  # worth knowing


@dataclass(frozen=True)
class PlacedProblem:
    """One finding."""

    file: str  # as the user named it, or below the folder that he named
    line: int  # of the file; of a notebook, of its cell
    column: int  # from 1, in characters
    cell: int | None  # the n-th code cell of a notebook that is not empty
    code: str
    level: Level
    message: str
    advice: str
    text: str  # the line, without blanks around it: a baseline knows it by that

    @property
    def place(self) -> str:
        """`train.py:3:4`, as compilers and editors write it."""
        return CellPlace(self.line, self.cell).in_file(self.file, self.column)

    @property
    def order(self) -> tuple[str, int, int, int, str]:
        """By file, then from top to bottom."""
        return self.file, self.cell or 0, self.line, self.column, self.code


@dataclass(frozen=True)
class Unread:
    """A file that could not be looked at."""

    file: str
    why: str  # one line that names the file

    @classmethod
    def by_fault(cls, file: str, what: str, error: Exception) -> Unread:
        """A fault of ours, for the person who meets it."""
        return cls(file, f"{file}: {what} ({type(error).__name__}: {error}); please report this file")


@dataclass(frozen=True)
class Answer:
    """What was found, at one file or at all."""

    problems: Sequence[PlacedProblem] = ()
    unread: Sequence[Unread] = ()  # faults of ours, too: a rule that could not look at it
    planned: Sequence[str] = ()  # files of which the conversion was planned
    leads_to: Sequence[str] = ()  # files to look at next


Tell = Callable[[str], None]  # gets what is being done, in words
