"""What is known of a notebook that is read as a script: where its cells stand, and what did not fit into a script."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class CellPlace:
    """A line as a person looks for it: of a file, or of a cell."""

    line: int  # from 1
    cell: int | None = None  # the n-th code cell that is not empty, `In [n]` of a fresh run; None: of a file

    def __str__(self) -> str:
        return f"line {self.line}" if self.cell is None else f"cell {self.cell}, line {self.line}"

    def in_file(self, name: str, column: int) -> str:
        """As compilers and editors write it: `train.py:3:4`; in a notebook the cell takes the column's place."""
        return f"{name}:{self.line}:{column}" if self.cell is None else f"{name}, {self}"


@dataclass(frozen=True)
class Cell:
    """A code cell, and where it stands in the script."""

    number: int
    first: int  # the line of the script that its first line is
    lines: int


@dataclass(frozen=True)
class Aside:
    """A line that only a notebook can run: what became of it in the script, and what a person should know or do."""

    line: int  # of the script
    because: str
    advice: str = ""  # not empty: it stands in the way, and this is what to do about it


@dataclass(frozen=True)
class Cells:
    """The cells of a notebook, in the order in which a script runs them."""

    cells: tuple[Cell, ...]
    asides: tuple[Aside, ...] = ()

    def place(self, line: int) -> CellPlace:
        """A line of the script as a line of a cell; what stands above or between cells stays a line of the script."""
        at = bisect_right([cell.first for cell in self.cells], line) - 1
        cell = self.cells[at] if at >= 0 else None
        if cell is None or line >= cell.first + cell.lines:
            return CellPlace(line)
        return CellPlace(line - cell.first + 1, cell.number)
