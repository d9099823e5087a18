"""Old code that no current Python reads, in the words of today, so that the original can be run at all."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from dp2ddp.source.files import SourceFile
from dp2ddp.source.parsing import ASYNC_ARGUMENT, LINE_END, async_arguments, parse_leniently
from dp2ddp.source.projects import Project

OLD, NEW = "async", "non_blocking"


def mended(source: SourceFile) -> SourceFile:
    """`x.cuda(async=True)` as torch calls it by now, `non_blocking`; any other file as it is."""
    tree = parse_leniently(source.text) if ASYNC_ARGUMENT.search(source.text) else None
    places = _places(source.text, async_arguments(tree)) if tree else []
    text = source.text
    for place in sorted(places, reverse=True):
        if text.startswith(OLD, place):
            text = text[:place] + NEW + text[place + len(OLD) :]
    return source.with_text(text)


def _places(text: str, nodes: Iterable[ast.keyword]) -> list[int]:
    """Where nodes begin, in characters; `ast` counts lines and UTF-8 bytes."""
    starts = [0, *(match.end() for match in LINE_END.finditer(text))]
    before = ((starts[node.lineno - 1], node.col_offset) for node in nodes)
    return [start + len(text[start : start + column].encode()[:column].decode()) for start, column in before]


def mended_files(project: Project) -> Mapping[Path, bytes]:
    """The files of a project that had to be mended, as they run; a notebook runs as the script that it is."""
    sources = (project.entry, *(module.source for module in project.modules))
    pairs = ((source, mended(source)) for source in sources)
    return {
        old.path: new.encoded(new.text)
        for old, new in pairs
        if old.path and (old.cells or new.text != old.text)
    }
