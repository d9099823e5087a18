"""Other scripts of a project that import what a conversion changes: test.py and eval.py beside train.py."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from dp2ddp.source.git import as_typed
from dp2ddp.source.projects import Imports, Project, repository_of
from dp2ddp.source.survey import EntryKind, survey

GUARD = re.compile(rb"^if\s.*__name__", re.MULTILINE)
# at the margin: it does something
ACTS = re.compile(rb"^(?:for|while|with)\s|^\w[\w.]*\([^\n]*$", re.MULTILINE)
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
    own = {module.source.path.resolve() for module in project.modules if module.source.path}
    may_import = import_of({entry, *own})
    entries, imports = [], Imports()
    for path, text in _scripts(repository_of(entry)):
        if path.resolve() not in {entry, *own} and may_import.search(text):
            uses = tuple(files[used] for used in sorted(files.keys() & imports.reached(path)))
            entries += [OtherEntry(as_typed(path), uses)] if uses else []
    return tuple(entries)


def does_something(text: bytes) -> bool:
    """Whether a file acts when it is run: it says so, or calls something at its margin."""
    return GUARD.search(text) is not None or ACTS.search(text) is not None


def import_of(files: Collection[Path]) -> re.Pattern[bytes]:
    """An import statement with the name of one of the files in it, or a text that may be the name in a dynamic one."""
    names = b"|".join(re.escape(os.fsencode(word)) for word in sorted(_words(files)))
    statement = rb"^[ \t]*(?:from|import)[ \t](?:[^\n(\\]|\\\r?\n|\([^)]*)*?\b(?:%s)\b" % names
    text = rb"[\"'][\w.]*\b(?:%s)\b[\w.]*[\"']" % names
    return re.compile(rb"%s|\b(?:import_module|__import__)\b(?s:.*)%s" % (statement, text), re.MULTILINE)


def _words(files: Collection[Path]) -> set[str]:
    """What an import of one of the files has in it: its name, or that of its package."""
    return {file.parent.name if file.stem == "__init__" else file.stem for file in files}


def _scripts(top: Path) -> Iterator[tuple[Path, bytes]]:
    """Files that are started, with their texts: they say so, or do something when they are read."""
    code = (
        entry.path for entry in survey(top) if entry.kind is EntryKind.CODE and entry.path.suffix == ".py"
    )
    for path in sorted(islice(code, MOST)):
        if not any(part.startswith(".") for part in path.relative_to(top).parts[:-1]):
            text = path.read_bytes()
            if does_something(text):
                yield path, text
