"""What `dp2ddp check` found, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dp2ddp.review.checking import CheckResult
from dp2ddp.review.problems import Level, PlacedProblem
from dp2ddp.words import counted


def check_text(result: CheckResult, each: bool = False) -> str:
    """A line for each problem, with what to do about it below, and one that counts them.

    What is decided once for a whole repository is told once, with a count; `each`: wherever it stands.
    """
    return "\n".join(_lines(result, each)) + "\n"


def _lines(result: CheckResult, each: bool) -> Iterator[str]:
    for same in [[problem] for problem in result.problems] if each else _together(result.problems):
        problem, others = same[0], same[1:]
        yield f"{problem.place}: {problem.level.value}: {problem.message} ({problem.code})"
        yield f"    {problem.advice}"
        if others:
            files = len({problem.file for problem in same})
            yield f"    ... and {len(others):,} more like it, {counted(files, 'file')} in all: --all lists them"
    for file in result.unread:
        yield f"not read: {file.why}"
    yield summary(result)


def _together(problems: Sequence[PlacedProblem]) -> list[list[PlacedProblem]]:
    """The problems in their order; those of a rule that is told once are one, where they say the same."""
    if not problems:
        return []
    from dp2ddp.review.check_rule import check_rules  # which are loaded where there are problems

    once = {rule.code for rule in check_rules() if rule.shown_once}
    groups: dict[tuple[object, ...], list[PlacedProblem]] = {}
    for problem in problems:
        key = (problem.code, problem.message) if problem.code in once else problem.order
        groups.setdefault(key, []).append(problem)
    return list(groups.values())


def summary(result: CheckResult) -> str:
    """One line: how many problems in how many files; a note is none."""
    notes = sum(problem.level is Level.NOTE for problem in result.problems)
    problems = len(result.problems) - notes
    parts = [counted(problems, "problem")] if problems else ["no problems" if notes else "nothing found"]
    if fixable := sum(problem.fixable for problem in result.problems):
        parts.append(f"{fixable} of them --fix mends")
    if notes:
        parts.append(counted(notes, "note"))
    if result.unread:
        parts.append(f"{len(result.unread)} not read")
    if result.known:
        parts.append(f"{result.known} known by the baseline")
    if result.gone:
        parts.append(f"{result.gone} of the baseline no longer there (--write-baseline forgets them)")
    return f"{counted(result.files, 'file')}: {', '.join(parts)}"
