"""Old code that no current Python reads, in the words of today, so that the original can be run at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dp2ddp.source.files import SourceFile
from dp2ddp.source.parsing import ASYNC_ARGUMENT, async_arguments, parse_leniently, place_in
from dp2ddp.source.projects import Project

OLD, NEW = "async", "non_blocking"


def mended(source: SourceFile) -> SourceFile:
    """`x.cuda(async=True)` as torch calls it by now, `non_blocking`; any other file as it is."""
    text = source.text
    tree = parse_leniently(text) if ASYNC_ARGUMENT.search(text) else None
    places = [place_in(text, node.lineno, node.col_offset) for node in async_arguments(tree)] if tree else []
    for place in sorted(places, reverse=True):
        if text.startswith(OLD, place):
            text = text[:place] + NEW + text[place + len(OLD) :]
    return source.with_text(text)


def mended_files(project: Project) -> Mapping[Path, bytes]:
    """The files of a project that had to be mended, as they run; a notebook runs as the script that it is."""
    sources = (project.entry, *(module.source for module in project.modules))
    pairs = ((source, mended(source)) for source in sources)
    return {
        old.path: new.encoded(new.text)
        for old, new in pairs
        if old.path and (old.cells or new.text != old.text)
    }
