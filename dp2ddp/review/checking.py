"""The whole check on one page: files → those that matter → problems → what of them was asked for. Read this first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dp2ddp.review.files import acts, may_matter, python_files, read_bytes
from dp2ddp.review.problems import Found, Level, PlacedProblem, Tell, Unread

if TYPE_CHECKING:
    from dp2ddp.review.settings import Settings
    from dp2ddp.source.files import Rewrite

TOLD = 1000  # files that are searched between two words about it


@dataclass(frozen=True)
class CheckResult:
    """What is wrong in which files."""

    files: int  # that were looked at
    problems: tuple[PlacedProblem, ...] = ()
    unread: tuple[Unread, ...] = ()
    known: int = 0  # problems that the baseline has
    gone: int = 0  # entries of the baseline that nothing is left of
    mended: tuple[Rewrite, ...] = ()  # what --fix has changed, or --diff would

    @property
    def fails(self) -> bool:
        """Whether anything was found that is more than a note, or a file could not be read."""
        return bool(self.unread) or any(problem.level is not Level.NOTE for problem in self.problems)


def check(paths: Iterable[str], tell: Tell = lambda text: None) -> CheckResult:
    """Look at files, folders and notebooks; nothing of them is imported or run."""
    named = list(paths)
    names = list(dict.fromkeys(python_files(named)))
    return _result(len(names), *_look_at(names, named, tell))


def check_text(name: str, text: str) -> CheckResult:
    """Look at one file, with this text instead of what lies on the disk."""
    from dp2ddp.review.hits import look_at_text

    return _result(1, *look_at_text(name, text))


def _look_at(names: Sequence[str], named: Sequence[str], tell: Tell) -> Found:
    """What is found. A file that was named itself may import what matters from a place that was not."""
    hits = []
    for place, path in enumerate(names):
        if place % TOLD == 0:
            tell(f"searching files: {place:,} of {len(names):,}")
        if may_matter(path):
            hits.append(path)
    scripts = _scripts(set(named) & set(names))
    if not hits and not scripts:
        return (), ()
    from dp2ddp.source.parsing import garbage_waits

    with garbage_waits():  # what is imported stays, and each file's own is collected behind it
        from dp2ddp.review.hits import look_at_hits  # takes longer to import than a thousand files to search

        return look_at_hits(hits, scripts, names, named, tell)


def _scripts(paths: Iterable[str]) -> list[str]:
    """Those of the files that import, and do something."""
    readable = (path for path in sorted(paths) if os.access(path, os.R_OK))
    return [path for path in readable if b"import" in read_bytes(path) and acts(path)]


def _result(count: int, problems: Iterable[PlacedProblem], unread: Iterable[Unread]) -> CheckResult:
    return CheckResult(count, tuple(sorted(problems, key=lambda problem: problem.order)), tuple(unread))


def chosen(result: CheckResult, settings: Settings) -> CheckResult:
    """The result without what the user does not want to see."""
    return replace(result, problems=tuple(filter(settings.takes, result.problems)))
