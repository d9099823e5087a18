"""One file, read by every rule of the check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from dp2ddp.codemod.looks.hidden_wraps import HiddenWrap, derived_in, wraps_in
from dp2ddp.codemod.model.modules import Module
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import OwnFile
from dp2ddp.review.problems import Level, PlacedProblem, Unread

HIDDEN = "DDP208"


@dataclass(frozen=True)
class Answer:
    """What was found at one file."""

    problems: Sequence[PlacedProblem] = ()
    unread: Sequence[Unread] = ()  # faults of ours, too: a rule that could not look at it
    planned: Sequence[str] = ()  # files of which the conversion was planned
    leads_to: Sequence[str] = ()  # files to look at next


def problems_of(file: OwnFile, rules: Sequence[CheckRule]) -> Iterator[tuple[CheckRule, Problem]]:
    """What the rules find in a script."""
    read = DDPScript(file)
    return ((rule, problem) for rule in rules for problem in _counting(file, rule.code, rule.find(read)))


def _counting(file: OwnFile, code: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Those of code that may run, which no comment `# dp2ddp: ignore[CODE]` leaves out."""
    for problem in problems:
        lines = {getattr(problem.node, "lineno", 1), getattr(problem.node, "end_lineno", 1)}
        ignored = any(file.comments.ignoring(code, line) for line in lines)
        if not ignored and not file.module.never_runs(problem.node):
            yield problem


def check_file(file: OwnFile, rules: Sequence[CheckRule]) -> Answer:
    """The problems of one file. A fault in one rule is told with its code, and the others go on."""
    read, module = DDPScript(file), file.module
    hidden = map(_hidden_wrap, islice(chain(wraps_in(module), derived_in(module)), 1))
    placed = [place_problem(module, HIDDEN, Level.NOTE, each) for each in _counting(file, HIDDEN, hidden)]
    faults: list[Unread] = []
    for rule in rules:
        try:
            found = _counting(file, rule.code, rule.find(read))
            placed += [place_problem(module, rule.code, rule.level, each) for each in found]
        except Exception as error:
            faults.append(fault(file.source.name, f"{rule.code} could not look at it", error))
    return Answer(sorted(placed, key=lambda problem: problem.order), faults)


def _hidden_wrap(first: HiddenWrap) -> Problem:
    """The first place of a file where a library wraps by itself, or where a class is derived from one that does."""
    library = first.library
    message = (
        f"{library.name} wraps the model in DataParallel by itself where it sees several GPUs: one process"
    )
    message += f" ({library.refused})" if library.refused else ""
    advice = f"write in its place: {'; '.join(library.instead)}"
    if library.starts_ddp:
        advice = "start it by torchrun, and it is DistributedDataParallel; dp2ddp convert does the rest of the script"
    return Problem(first.node, message, advice)


def fault(file: str, what: str, error: Exception) -> Unread:
    """A fault of ours, for the person who meets it."""
    return Unread(file, f"{file}: {what} ({type(error).__name__}: {error}); please report this file")


def place_problem(script: Module, code: str, level: Level, problem: Problem) -> PlacedProblem:
    """A problem, with its place as a person looks for it."""
    source, positions = script.source, script.positions
    line = getattr(problem.node, "lineno", 1)
    start = positions.line_starts[line - 1]
    place = source.place(line)
    return PlacedProblem(
        file=source.name,
        line=place.line,
        column=positions.span(problem.node).start - start + 1,
        cell=place.cell,
        code=code,
        level=level,
        message=problem.message,
        advice=problem.advice,
        text=positions.text[start : positions.line_end(line)].strip(),
        fixable=bool(problem.fix),
    )
