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

VERSION = 1
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
    """Keep these problems as known."""
    entries = [dict(zip(("file", "code", "line"), known_as(problem), strict=True)) for problem in problems]
    path.write_text(json.dumps({"version": VERSION, "problems": entries}, indent=2) + "\n", encoding="utf-8")


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
