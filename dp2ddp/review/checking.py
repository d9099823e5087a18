"""The whole check on one page: files → those that matter → problems → what of them was asked for. Read this first."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import OptionError
from dp2ddp.options import CheckOptions
from dp2ddp.review.files import acts, may_matter, python_files, read_bytes
from dp2ddp.review.problems import Found, Level, PlacedProblem, Tell, Unread
from dp2ddp.review.settings import checked_codes, read_settings
from dp2ddp.source.pyproject import says_unread

if TYPE_CHECKING:
    from dp2ddp.review.fixing import Mended

TOLD = 1000  # files that are searched between two words about it


@dataclass(frozen=True)
class CheckResult:
    """What is wrong in which files."""

    files: int  # that were looked at
    problems: tuple[PlacedProblem, ...] = ()
    unread: tuple[Unread, ...] = ()
    known: int = 0  # problems that the baseline has
    gone: int = 0  # entries of the baseline that nothing is left of
    mended: tuple[Mended, ...] = ()  # what --fix has changed, or --diff would

    @property
    def fails(self) -> bool:
        """Whether anything was found that is more than a note, or a file could not be read."""
        return bool(self.unread) or any(problem.level is not Level.NOTE for problem in self.problems)


def whole_check(options: CheckOptions, commands: Collection[str]) -> CheckResult:
    """Look at the files, by the settings of their project; `commands` may have tables of their own among these.

    Its progress gets a line for what was mended. Raises SourceError for what cannot be read, and for codes of no rule,
    OptionError for a baseline that is to be written and has no name, and for a text that is not of one file.
    """
    paths, tell, remark = options.names, options.progress.begin, options.progress.say
    select, ignore = checked_codes(options.select), checked_codes(options.ignore)
    if options.text is not None and (len(paths) != 1 or options.fix or options.diff):
        raise OptionError("a text is one file's, and only what lies on the disk is mended")
    settings = read_settings(_common_folder(paths), commands)
    if settings.unread:
        remark(f"dp2ddp: {says_unread(settings.unread)}")
    settings = replace(settings, select=select or settings.select, ignore=(*settings.ignore, *ignore))
    baseline = Path(options.baseline) if options.baseline else settings.baseline
    if options.write_baseline and baseline is None:
        raise OptionError("--write-baseline needs --baseline FILE")
    if options.write_baseline and baseline:
        from dp2ddp.review.baseline import refuse_foreign

        refuse_foreign(baseline)  # before anything is mended
    found = check(paths, tell) if options.text is None else _check_text(paths[0], options.text)
    wanted = tuple(filter(settings.takes, found.problems))
    files = _mended(wanted) if options.fix or options.diff else []
    if files:
        remark(_what_is_mended(files, options.diff))
    if files and not options.diff:
        from dp2ddp.review.fixing import write_mended

        write_mended(files)
        found = check(paths, tell)
        wanted = tuple(filter(settings.takes, found.problems))
    result = replace(found, problems=wanted, mended=tuple(files))
    return result if baseline is None else _beyond(result, baseline, options.write_baseline)


def check(paths: Iterable[str], tell: Tell = lambda text: None) -> CheckResult:
    """Look at files, folders and notebooks; nothing of them is imported or run."""
    named = list(paths)
    names = list(dict.fromkeys(python_files(named)))
    return _result(len(names), *_look_at(names, named, tell))


def _check_text(name: str, text: str) -> CheckResult:
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


def _common_folder(paths: Sequence[str]) -> Path:
    """Where the search for pyproject.toml begins."""
    folder = Path(os.path.commonpath([os.path.abspath(path) for path in paths]))
    return folder if folder.is_dir() else folder.parent


def _mended(problems: Iterable[PlacedProblem]) -> list[Mended]:
    """The files in which something can be mended."""
    places: dict[str, set[tuple[str, int]]] = {}
    for problem in problems:
        if problem.fixable:
            places.setdefault(problem.file, set()).add((problem.code, problem.line))
    if not places:
        return []
    from dp2ddp.review.fixing import mended

    return [file for path, wrong in places.items() if (file := mended(path, wrong))]


def _what_is_mended(files: Sequence[Mended], shown_only: bool) -> str:
    count = sum(file.count for file in files)
    what = "--fix would mend" if shown_only else "mended"
    return f"{what} {count} problem{'' if count == 1 else 's'} in {len(files)} file{'' if len(files) == 1 else 's'}"


def _beyond(result: CheckResult, baseline: Path, write: bool) -> CheckResult:
    """What the baseline does not know; all of it is known once it is written."""
    from dp2ddp.review.baseline import known_as, read_baseline, write_baseline

    if write:
        write_baseline(baseline, result.problems)
    left, fresh = read_baseline(baseline), []
    for problem in result.problems:
        if left[known_as(problem)] > 0:
            left[known_as(problem)] -= 1
        else:
            fresh.append(problem)
    count = len(result.problems) - len(fresh)
    return replace(result, problems=tuple(fresh), known=count, gone=left.total())
