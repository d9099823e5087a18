"""The whole check on one page: files → those that matter → problems → what of them was asked for. Read this first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.review.files import may_matter, python_files, read_bytes
from dp2ddp.review.problems import Level, PlacedProblem, Unread

if TYPE_CHECKING:
    from dp2ddp.source.files import Rewrite

Tell = Callable[[str], None]  # gets what is being done, in words
Found = tuple[Iterable[PlacedProblem], Iterable[Unread]]
TOLD = 1000  # files that are searched between two words about it
PARALLEL = 12  # files; from there on more processes are worth their start


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
    return _mending_within(named, _result(len(names), *_look_at(names, named, tell)))


def _mending_within(named: Iterable[str], result: CheckResult) -> CheckResult:
    """The result, in which nothing can be mended that only a link below a named folder leads to: it is another's."""
    tops = [os.path.realpath(path) for path in named]

    def is_within(path: str) -> bool:
        real = os.path.realpath(path)
        return any(real == top or real.startswith(os.path.join(top, "")) for top in tops)

    problems = (
        replace(problem, fixable=problem.fixable and is_within(problem.file)) for problem in result.problems
    )
    return replace(result, problems=tuple(problems))


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

        return look_at_hits(hits, scripts, names, tell)


def _scripts(paths: Iterable[str]) -> list[str]:
    """Those of the files that import, and do something."""
    importing = [path for path in sorted(paths) if os.access(path, os.R_OK) and b"import" in read_bytes(path)]
    if not importing:
        return []
    from dp2ddp.source.entries import does_something

    return [path for path in importing if path.endswith(".ipynb") or does_something(read_bytes(path))]


def _result(count: int, problems: Iterable[PlacedProblem], unread: Iterable[Unread]) -> CheckResult:
    return CheckResult(count, tuple(sorted(problems, key=lambda problem: problem.order)), tuple(unread))


@dataclass(frozen=True)
class Choice:
    """Which problems the user wants to see; codes may be families (`DDP6`)."""

    select: tuple[str, ...] = ()  # none: all
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (pattern of a path, codes)
    root: str = "."  # the folder that the patterns start from

    def takes(self, problem: PlacedProblem) -> bool:
        """Whether a problem is among them."""
        if self.select and not problem.code.startswith(self.select):
            return False
        path = Path(os.path.relpath(problem.file, self.root))
        leaves_out = (codes for pattern, codes in self.per_file_ignores if _matches(path, pattern))
        return not any(problem.code.startswith(codes) for codes in (*leaves_out, self.ignore) if codes)


def _matches(path: Path, pattern: str) -> bool:
    """`tests/*` as well as `*.ipynb` and `train.py`; a folder stands for all that is in it."""
    return path.match(pattern) or any(parent.match(pattern.rstrip("/*")) for parent in path.parents)


def chosen(result: CheckResult, choice: Choice) -> CheckResult:
    """The result without what the user does not want to see."""
    return replace(result, problems=tuple(problem for problem in result.problems if choice.takes(problem)))
