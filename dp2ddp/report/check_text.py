"""What `dp2ddp check` found, in words."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.review.checking import CheckResult
from dp2ddp.review.problems import Level


def check_text(result: CheckResult) -> str:
    """A line for each problem, with what to do about it below, and one that counts them."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: CheckResult) -> Iterator[str]:
    for problem in result.problems:
        yield f"{problem.place}: {problem.level.value}: {problem.message} ({problem.code})"
        yield f"    {problem.advice}"
    for file in result.unread:
        yield f"not read: {file.why}"
    yield summary(result)


def summary(result: CheckResult) -> str:
    """One line: how many problems in how many files; a note is none."""
    notes = sum(problem.level is Level.NOTE for problem in result.problems)
    problems = len(result.problems) - notes
    parts = [_count(problems, "problem")] if problems else ["no problems" if notes else "nothing found"]
    if fixable := sum(problem.fixable for problem in result.problems):
        parts.append(f"{fixable} of them --fix mends")
    if notes:
        parts.append(_count(notes, "note"))
    if result.unread:
        parts.append(f"{len(result.unread)} not read")
    if result.known:
        parts.append(f"{result.known} known by the baseline")
    if result.gone:
        parts.append(f"{result.gone} of the baseline no longer there (--write-baseline forgets them)")
    return f"{_count(result.files, 'file')}: {', '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
