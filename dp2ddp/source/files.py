"""A file that a user names as text, with what is needed to write it back byte for byte."""

from __future__ import annotations

import io
import os
import re
import tokenize
from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from dp2ddp.errors import SourceError


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


BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class SourceFile:
    """A script as text; line endings stay in the text as they were."""

    path: Path | None  # None: standard input
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    cells: Cells | None = None  # of a notebook, whose text as a script this is

    @property
    def name(self) -> str:
        """The path as a text; `<stdin>` without one."""
        return "<stdin>" if self.path is None else str(self.path)

    @property
    def beside(self) -> Path | None:
        """Where the result is written if nobody says where."""
        if self.path is None:
            return None
        return self.path.with_name(f"{self.path.stem}_ddp{'.py' if self.cells else self.path.suffix}")

    @property
    def output(self) -> Path | None:
        """Where the result belongs in a copy of the project: a script keeps its place, a notebook becomes one."""
        return self.beside if self.cells else self.path

    def place(self, line: int) -> CellPlace:
        """A line of the text as a person looks for it."""
        return self.cells.place(line) if self.cells else CellPlace(line)

    @property
    def data(self) -> bytes:
        """The bytes that were read."""
        return self.encoded(self.text)

    def encoded(self, text: str) -> bytes:
        """The bytes of `text` in this file's own encoding."""
        try:
            body = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            letters = text[error.start : error.end]
            raise SourceError(f"{self.name}: {letters!r} cannot be written in {self.encoding}") from error
        return BOM + body if self.bom else body

    def with_text(self, text: str) -> SourceFile:
        """The same file with another text."""
        return replace(self, text=text)


def decode_source(data: bytes, path: Path | None) -> SourceFile:
    """Bytes to text by PEP 263 (a byte order mark, a coding comment, or UTF-8)."""
    name = "<stdin>" if path is None else str(path)
    if b"\0" in data:
        raise SourceError(f"{name}: not a Python script (it holds binary data)")
    bom = data.startswith(BOM)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        text = data[len(BOM) if bom else 0 :].decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceError(f"{name}: not readable as text ({error}); save it as UTF-8") from error
    return SourceFile(path, text, encoding, bom)


@dataclass(frozen=True)
class Rewrite:
    """One file before and after."""

    before: SourceFile  # of no text where there is none yet
    after: str
    how: ClassVar[str] = "changed"

    @property
    def changed(self) -> bool:
        """Whether the text is another than before."""
        return self.after != self.before.text

    @property
    def data(self) -> bytes:
        """The result in the file's own encoding."""
        return self.before.encoded(self.after)

    def diff(self) -> str:
        """A unified diff that `patch` applies to the file, byte for byte; the line endings are in it."""
        import difflib  # most files that are read are never shown as a diff

        mark = "\ufeff" if self.before.bom else ""
        before, after = _lines(mark + self.before.text), _lines(mark + self.after)
        name = self.before.name + ("\t" if " " in self.before.name else "")  # where `patch` ends a name
        lines = difflib.unified_diff(before, after, name, f"{self.before.name} ({self.how})")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )

    def diff_bytes(self) -> bytes:
        """The same in the file's own encoding; its name as the system spells it."""
        head, at, rest = self.diff().partition("\n@@")
        return os.fsencode(head) + (at + rest).encode(self.before.encoding)


def _lines(text: str) -> list[str]:
    """As `patch` counts them: form feeds, and whatever else str.splitlines ends a line with, are part of a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def dominant_newline(text: str) -> str:
    """The line ending that most lines have; a file without any gets the Unix one."""
    endings = re.findall(r"\r\n|\r|\n", text)
    return max(("\n", "\r\n", "\r"), key=endings.count) if endings else "\n"
