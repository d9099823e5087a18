"""Other scripts of a project that import what a conversion changes: test.py and eval.py beside train.py."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.folders import LEFT_OUT, as_typed
from dp2ddp.source.projects import TOPS, Project, read_project

GUARD = re.compile(rb"^if\s.*__name__", re.MULTILINE)
ACTS = re.compile(
    rb"^(?:for|while|with)\s|^\w[\w.]*\([^\n]*$", re.MULTILINE
)  # at the margin: it does something
MOST = 2000  # files; a folder with more is a collection of projects


@dataclass(frozen=True)
class OtherEntry:
    """A script, and the files it imports, itself or through others, that are not as they were."""

    path: Path
    uses: tuple[Path, ...]


def other_entries(project: Project, changed: Collection[Path]) -> tuple[OtherEntry, ...]:
    """The scripts beside the converted one, anywhere in its repository, that import a changed file."""
    if project.entry.path is None or not changed:
        return ()
    entry = project.entry.path.resolve()
    files = {path.resolve(): path for path in changed}
    own = {one.source.path.resolve() for one in project.modules if one.source.path}
    words = re.compile(
        rb"\b(?:%s)\b" % b"|".join(re.escape(os.fsencode(one)) for one in _words({entry, *own}))
    )
    found = []
    for path, text in _scripts(_top(entry)):
        if path.resolve() not in {entry, *own} and words.search(text):
            uses = tuple(files[one] for one in sorted(files.keys() & _imported(path)))
            found += [OtherEntry(as_typed(path), uses)] if uses else []
    return tuple(found)


def _imported(path: Path) -> set[Path]:
    try:
        modules = read_project(path).modules
    except SourceError:
        return set()
    return {one.source.path.resolve() for one in modules if one.source.path}


def _words(files: Collection[Path]) -> set[str]:
    """What an import of one of the files has in it: its name, or that of its package."""
    return {one.parent.name if one.stem == "__init__" else one.stem for one in files}


def _top(entry: Path) -> Path:
    """The repository's folder, or the script's own."""
    marked = (one for one in entry.parents if any((one / mark).exists() for mark in TOPS))
    return next(marked, entry.parent)


def _scripts(top: Path) -> Iterator[tuple[Path, bytes]]:
    """Files that are started, with their texts: they say so, or do something when they are read."""
    count = 0
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if name not in LEFT_OUT and not name.startswith("."))
        for name in sorted(one for one in files if one.endswith(".py")):
            count += 1
            path = Path(folder) / name
            if count <= MOST and path.is_file():
                text = path.read_bytes()
                if GUARD.search(text) or ACTS.search(text):
                    yield path, text
