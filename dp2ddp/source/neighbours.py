"""What lies around a script and has to do with it: scripts that import what changes, commands, files of settings."""

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
    line = (
        rb"(?:[^\n(\\]|\\\r?\n|\([^)]*\))*?(?:\([^)]*)?"  # each bracket in one way: there are long docstrings
    )
    statement = rb"^[ \t]*(?:from|import)[ \t]%s\b(?:%s)\b" % (line, names)
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
        hidden = any(part.startswith(".") for part in path.relative_to(top).parts[:-1])
        if not hidden and os.access(path, os.R_OK):
            text = path.read_bytes()
            if does_something(text):
                yield path, text


# ---- commands that setup.py or pyproject.toml declare: a function of a file that is started

FILES = ("pyproject.toml", "setup.cfg", "setup.py")
# train = "package.cli:main", "train=package.cli:main"
ENTRY = re.compile(r"""^\s*["']?[\w.-]+["']?\s*=\s*["']?(?P<module>[\w.]+):(?P<function>\w+)""", re.MULTILINE)
IN_LIST = re.compile(r"""["'][\w.-]+\s*=\s*(?P<module>[\w.]+):(?P<function>\w+)["']""")


def started_function(entry: Path) -> str | None:
    """The function of a file that a command starts, as the nearest of the files above it say."""
    path = entry.resolve()
    for folder in path.parents[:6]:
        for name in FILES:
            try:
                text = (folder / name).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            for match in (*ENTRY.finditer(text), *IN_LIST.finditer(text)):
                if _is_of(match["module"], path, folder):
                    return match["function"]
    return None


def _is_of(module: str, path: Path, folder: Path) -> bool:
    """Whether a module is this file, in the folder of the project or below it (src/package/cli.py)."""
    relative = path.relative_to(folder).with_suffix("").parts
    parts = tuple(module.split("."))
    return relative[-len(parts) :] == parts


# ---- files of settings: what a script may look up by a name that stands in none of its own lines

SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".sh", ".args", ".txt")
FOLDERS = ("config", "configs", "conf", "cfg", "cfgs", "experiments", "options", "params", "scripts", "yaml")
MOST_SETTINGS = 400  # files; a folder of results is none of settings
LARGEST = 200_000  # bytes
# `DataParallel` as a value, with or without its module: quoted, or behind `=`, `:` or a flag.
VALUE = re.compile(
    r"""(["']) (?:[\w.]*\.)? DataParallel \1
    | (?:[:=]|--[\w-]+) \s* (?:[\w.]*\.)? DataParallel \s* (?:$|[\s,}\]#\\])""",
    re.VERBOSE | re.MULTILINE,
)


def names_data_parallel(text: str) -> int | None:
    """The line on which a text names DataParallel as a value, the first one."""
    match = VALUE.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else None


def find_mentions(folder: Path) -> Iterator[str]:
    """Where a value is DataParallel, "conf/a.yaml:3": beside the script, and in folders with names of settings."""
    patterns = ["*", *(f"{name}/{below}" for name in FOLDERS for below in ("*", "*/*"))]
    paths = (path for pattern in patterns for path in folder.glob(pattern))
    files = sorted(path for path in paths if path.suffix in SUFFIXES and path.is_file())
    for path in files[:MOST_SETTINGS]:
        try:
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST else ""
        except (OSError, UnicodeDecodeError):
            continue
        if line := names_data_parallel(text):
            yield f"{path.relative_to(folder)}:{line}"
