"""Problems of old code that are known: only new ones are reported.

A problem is known by its file, its code and the text of its line, so that it may move up and down.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dp2ddp.errors import SourceError
from dp2ddp.review.problems import PlacedProblem
from dp2ddp.source.writing import write_atomically

VERSION = 1
ENTRY = ("file", "code", "line")  # of a problem
Known = tuple[str, ...]  # file, code, text of the line


def known_as(problem: PlacedProblem) -> Known:
    return Path(problem.file).as_posix(), problem.code, problem.text


def beyond(path: Path, problems: Sequence[PlacedProblem]) -> tuple[tuple[PlacedProblem, ...], int, int]:
    """The problems that the baseline does not know, how many it knows, and how many of these are no longer there."""
    left, fresh = _read(path), []
    for problem in problems:
        left[known_as(problem)] -= 1
        if left[known_as(problem)] < 0:
            fresh.append(problem)
    return tuple(fresh), len(problems) - len(fresh), (+left).total()


def _read(path: Path) -> Counter[Known]:
    """How often each problem is known; SourceError where the file is no baseline."""
    if not path.exists():
        raise SourceError(f"{path}: no such file; --write-baseline writes one")
    document = _document(path, "not a baseline of dp2ddp check; --write-baseline writes one")
    if document["version"] != VERSION:
        raise SourceError(
            f"{path}: a baseline of version {document['version']}, this reads {VERSION}; write it anew"
        )
    return Counter(tuple(entry[key] for key in ENTRY) for entry in document["problems"])


def write_baseline(path: Path, problems: Iterable[PlacedProblem]) -> None:
    """Keep these problems as known."""
    entries = [dict(zip(ENTRY, known_as(problem), strict=True)) for problem in problems]
    document = json.dumps({"version": VERSION, "problems": entries}, indent=2) + "\n"
    write_atomically(path, document.encode())


def refuse_foreign(path: Path) -> None:
    """A SourceError if something lies there that is no baseline of any version: it would be lost."""
    if path.is_file() and path.stat().st_size:
        otherwise = (
            "exists, and is no baseline of dp2ddp check; name another file by --baseline, or remove this one"
        )
        _document(path, otherwise)


def _document(path: Path, otherwise: str) -> dict[str, Any]:
    """What a baseline of any version says; SourceError, which says what to do, for anything else."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        is_baseline = document.keys() == {"version", "problems"}
        if is_baseline and all(entry.keys() == {*ENTRY} for entry in document["problems"]):
            return document
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, AttributeError):
        pass
    raise SourceError(f"{path}: {otherwise}")
