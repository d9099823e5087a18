"""`--fix`, `--diff`: the edits of rules that cannot change a training, carried out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dp2ddp.errors import ConversionError
from dp2ddp.review.check_rule import check_rules
from dp2ddp.review.hits import problems_of
from dp2ddp.review.own_file import OwnFile
from dp2ddp.review.problems import PlacedProblem
from dp2ddp.source.files import Rewrite
from dp2ddp.source.parsing import parse
from dp2ddp.source.read_source import read_source
from dp2ddp.source.writing import write_together


@dataclass(frozen=True)
class Mended(Rewrite):
    """A script before and after its problems are mended."""

    count: int = 0  # of the problems
    how: ClassVar[str] = "mended"


def mended_files(problems: Iterable[PlacedProblem]) -> tuple[Mended, ...]:
    """The files in which something can be mended; notebooks stay as they are."""
    places: dict[str, set[tuple[str, int]]] = {}
    for problem in problems:
        if problem.fixable and problem.file.endswith(".py"):
            places.setdefault(problem.file, set()).add((problem.code, problem.line))
    files = (_mended(path, wrong) for path, wrong in places.items())
    return tuple(file for file in files if file)


def _mended(path: str, places: Collection[tuple[str, int]]) -> Mended | None:
    """A script without the problems at these places (code, line) that can be mended."""
    file = OwnFile(read_source(path))
    rules = [rule for rule in check_rules() if rule.code in {code for code, _ in places}]
    problems = [
        problem
        for rule, problem in problems_of(file, rules)
        if problem.fix and (rule.code, getattr(problem.node, "lineno", 1)) in places
    ]
    if not problems:
        return None
    from dp2ddp.codemod.writing.apply import edit_text  # libcst, for files that change only

    try:
        text = edit_text(file.module, [edit for problem in problems for edit in problem.fix])
        parse(file.source.with_text(text))
    except ConversionError:
        return None  # two fixes of one place: the person decides
    return Mended(file.source, text, len(problems))


def write_mended(files: Sequence[Mended]) -> None:
    """All of them, or none."""
    paths = {file: Path(file.before.name) for file in files}
    write_together(
        {path: file.data for file, path in paths.items()},
        {path: file.before.data for file, path in paths.items()},
    )
