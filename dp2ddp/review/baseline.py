"""Problems of old code that are known: only new ones are reported.

A problem is known by its file, its code and the text of its line, so that it may move up and down.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.review.checking import CheckResult
from dp2ddp.review.problems import PlacedProblem
from dp2ddp.source.writing import write_atomically

VERSION = 1
ENTRY = ("file", "code", "line")  # of a problem
Known = tuple[str, str, str]  # file, code, text of the line


def known_as(problem: PlacedProblem) -> Known:
    return Path(problem.file).as_posix(), problem.code, problem.text


def read_baseline(path: Path) -> Counter[Known]:
    """How often each problem is known; SourceError where the file is no baseline."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        entries = [(entry["file"], entry["code"], entry["line"]) for entry in document["problems"]]
        version = document["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = (
            "no such file"
            if isinstance(error, FileNotFoundError)
            else f"not a baseline of dp2ddp check ({error})"
        )
        raise SourceError(f"{path}: {why}; --write-baseline writes one") from error
    if version != VERSION:
        raise SourceError(f"{path}: a baseline of version {version}, this reads {VERSION}; write it anew")
    return Counter(entries)


def write_baseline(path: Path, problems: Iterable[PlacedProblem]) -> None:
    """Keep these problems as known; SourceError where another file lies that is no baseline."""
    refuse_foreign(path)
    entries = [dict(zip(ENTRY, known_as(problem), strict=True)) for problem in problems]
    document = json.dumps({"version": VERSION, "problems": entries}, indent=2) + "\n"
    write_atomically(path, document.encode())


def refuse_foreign(path: Path) -> None:
    """A SourceError if something lies there that is no baseline of any version: it would be lost."""
    try:
        content = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    if content and not _is_baseline(content):
        raise SourceError(
            f"{path}: exists, and is no baseline of dp2ddp check; name another file by --baseline, or remove this one"
        )


def _is_baseline(content: bytes) -> bool:
    try:
        document = json.loads(content)
    except ValueError:
        return False
    if not isinstance(document, dict) or document.keys() != {"version", "problems"}:
        return False
    problems = document["problems"]
    return isinstance(problems, list) and all(
        isinstance(entry, dict) and entry.keys() == set(ENTRY) for entry in problems
    )


def without_known(result: CheckResult, known: Counter[Known]) -> CheckResult:
    """The result with new problems only."""
    left, fresh = known.copy(), []
    for problem in result.problems:
        if left[known_as(problem)] > 0:
            left[known_as(problem)] -= 1
        else:
            fresh.append(problem)
    count = len(result.problems) - len(fresh)
    return replace(result, problems=tuple(fresh), known=count, gone=left.total())
