"""A check with all that belongs to it: a project's settings, mending, what is known already."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import OptionError
from dp2ddp.options import CheckOptions
from dp2ddp.review.checking import CheckResult, check, check_text, chosen
from dp2ddp.review.settings import checked_codes, read_settings
from dp2ddp.source.pyproject import says_unread

if TYPE_CHECKING:
    from dp2ddp.review.fixing import Mended


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
    found = check(paths, tell) if options.text is None else check_text(paths[0], options.text)
    result = chosen(found, settings)
    files = _mended(result) if options.fix or options.diff else []
    if files:
        remark(_what_is_mended(files, options.diff))
    if files and not options.diff:
        from dp2ddp.review.fixing import write_mended

        write_mended(files)
        result = chosen(check(paths, tell), settings)
    result = replace(result, mended=tuple(files))
    return result if baseline is None else _beyond(result, baseline, options.write_baseline)


def _common_folder(paths: Sequence[str]) -> Path:
    """Where the search for pyproject.toml begins."""
    folder = Path(os.path.commonpath([os.path.abspath(path) for path in paths]))
    return folder if folder.is_dir() else folder.parent


def _mended(result: CheckResult) -> list[Mended]:
    """The files in which something can be mended."""
    places: dict[str, set[tuple[str, int]]] = {}
    for problem in result.problems:
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
    from dp2ddp.review.baseline import read_baseline, without_known, write_baseline

    if write:
        write_baseline(baseline, result.problems)
    return without_known(result, read_baseline(baseline))
