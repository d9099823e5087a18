"""Files that run in the words of others: a conversion on the way, without a file of ours in the user's folder.

Whoever imports such a file, or starts it, gets the other text. Its `__file__` is that of the file itself; tracebacks,
stacks, and whoever asks for the source of a function have the lines that run, of a "train.converted.py" in the run
folder. The cells of a notebook are compiled one by one, so that tracebacks name them.
"""

from __future__ import annotations
import __future__

import linecache
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from dp2ddp.taps import Taps


@dataclass(frozen=True)
class Overlay:
    """Pairs of files: the user's own, and the one that is read in its place."""

    pairs: tuple[tuple[str, str], ...] = ()

    def code(self, path: str) -> CodeType:
        """What `python PATH` runs."""
        file = dict(self.pairs).get(os.path.realpath(path), os.path.abspath(path))
        return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)

    def codes(self, path: str) -> Sequence[CodeType]:
        """The same, one after the other where it is a notebook."""
        if not path.endswith(".ipynb"):
            return [self.code(path)]
        other = dict(self.pairs).get(os.path.realpath(path), path)
        return list(_cell_codes(os.path.abspath(path), Path(other).read_text(encoding="utf-8")))

    def install(self) -> None:
        """From now on, imports in this process, and in those that it forks."""
        if not self.pairs:
            return
        names = {own for own, _ in self.pairs}

        def get_code(original: Any, loader: SourceFileLoader, fullname: str) -> CodeType | None:
            file = loader.get_filename(fullname)
            return self.code(file) if os.path.realpath(file) in names else original(loader, fullname)

        Taps().around("get_code", get_code, SourceFileLoader)


def write_overlay(folder: Path, files: Iterable[tuple[Path, bytes]]) -> tuple[tuple[str, str], ...]:
    """Keep the texts in a folder; returns the pairs."""
    pairs = []
    for number, (own, data) in enumerate(files):
        other = folder / f"{number}" / f"{own.stem}.converted.py"
        other.parent.mkdir(parents=True)
        other.write_bytes(data)
        pairs.append((os.path.realpath(own), str(other)))
    return tuple(pairs)


def _cell_codes(name: str, text: str) -> Iterator[CodeType]:
    """The code of what stands above all cells, and of each cell; tracebacks count the lines of a cell."""
    from dp2ddp.source.notebook.launching import parts_of

    flags = 0
    for number, part in parts_of(text).items():
        place = f"{name}, cell {number}" if number else name
        own = part.partition("\n")[2] if number else part  # without the mark above it
        code = compile(own, place, "exec", flags, dont_inherit=True)
        flags |= code.co_flags & __future__.annotations.compiler_flag  # as if it stood in each cell
        # for tracebacks; nothing looks for such a file
        linecache.cache[place] = (0, None, own.splitlines(keepends=True), place)
        yield code
