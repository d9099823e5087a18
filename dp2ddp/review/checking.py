"""The whole check on one page: files → those that matter → problems → what of them was asked for. Read this first."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.errors import OptionError
from dp2ddp.options import CheckOptions
from dp2ddp.review.files import acts, may_matter, python_files, read_bytes
from dp2ddp.review.problems import Answer, Level, PlacedProblem, Tell, Unread
from dp2ddp.review.settings import Settings, checked_codes, read_settings
from dp2ddp.source.pyproject import says_unread

TOLD = 1000  # files that are searched between two words about it


@dataclass(frozen=True)
class CheckResult:
    """What is wrong in which files."""

    files: int  # that were looked at
    problems: tuple[PlacedProblem, ...] = ()
    unread: tuple[Unread, ...] = ()
    known: int = 0  # problems that the baseline has
    gone: int = 0  # entries of the baseline that nothing is left of

    @property
    def fails(self) -> bool:
        """Whether anything was found that is more than a note, or a file could not be read."""
        return bool(self.unread) or any(problem.level is not Level.NOTE for problem in self.problems)


def whole_check(options: CheckOptions, commands: Collection[str]) -> CheckResult:
    """Look at the files, by the settings of their project; `commands` may have tables of their own among these.

    Raises SourceError for what cannot be read, OptionError for codes of no rule, for a baseline that is to be written
    and has no name, and for a text that is not of one file.
    """
    select, ignore = checked_codes(options.select), checked_codes(options.ignore)
    if options.text is not None and len(options.names) != 1:
        raise OptionError("a text is one file's")
    settings = read_settings(_common_folder(options.names), commands)
    if settings.unread:
        options.progress.say(f"dp2ddp: {says_unread(settings.unread)}")
    settings = replace(settings, select=select or settings.select, ignore=(*settings.ignore, *ignore))
    baseline = Path(options.baseline) if options.baseline else settings.baseline
    if options.write_baseline:
        from dp2ddp.review.baseline import refuse_foreign

        if baseline is None:
            raise OptionError("--write-baseline needs --baseline FILE")
        refuse_foreign(baseline)  # before anything is looked at
    result = _wanted(options, settings)
    if baseline is None:
        return result
    from dp2ddp.review.baseline import beyond, write_baseline

    if options.write_baseline:
        write_baseline(baseline, result.problems)
    problems, known, gone = beyond(baseline, result.problems)
    return replace(result, problems=problems, known=known, gone=gone)


def _wanted(options: CheckOptions, settings: Settings) -> CheckResult:
    """What is found of what was asked for."""
    if options.text is None:
        found = check(options.names, options.progress.begin)
    else:
        from dp2ddp.review.hits import look_at_text

        found = _result(1, look_at_text(options.names[0], options.text))
    return replace(found, problems=tuple(filter(settings.takes, found.problems)))


def check(paths: Iterable[str], tell: Tell = lambda text: None) -> CheckResult:
    """Look at files, folders and notebooks; nothing of them is imported or run."""
    named = list(paths)
    names = list(dict.fromkeys(python_files(named)))
    return _result(len(names), _look_at(names, named, tell))


def _look_at(names: Sequence[str], named: Sequence[str], tell: Tell) -> Answer:
    """What is found. A file that was named itself may import what matters from a place that was not."""
    hits = []
    for place, path in enumerate(names):
        if place % TOLD == 0:
            tell(f"searching files: {place:,} of {len(names):,}")
        if may_matter(path):
            hits.append(path)
    scripts = _scripts(set(named) & set(names))
    if not hits and not scripts:
        return Answer()
    from dp2ddp.source.parsing import garbage_waits

    with garbage_waits():  # what is imported stays, and each file's own is collected behind it
        from dp2ddp.review.hits import look_at_hits  # takes longer to import than a thousand files to search

        return look_at_hits(hits, scripts, names, tell)


def _scripts(paths: Iterable[str]) -> list[str]:
    """Those of the files that import, and do something."""
    readable = (path for path in sorted(paths) if os.access(path, os.R_OK))
    return [path for path in readable if b"import" in read_bytes(path) and acts(path)]


def _result(count: int, found: Answer) -> CheckResult:
    problems = sorted(found.problems, key=lambda problem: problem.order)
    return CheckResult(count, tuple(problems), tuple(found.unread))


def _common_folder(paths: Sequence[str]) -> Path:
    """Where the search for pyproject.toml begins."""
    folder = Path(os.path.commonpath([os.path.abspath(path) for path in paths]))
    return folder if folder.is_dir() else folder.parent
