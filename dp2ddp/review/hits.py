"""The files that matter, each read by all rules; side by side where there are many."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path

from dp2ddp.codemod.looks.hidden_wraps import HiddenWrap, derived_in, wraps_in
from dp2ddp.errors import SourceError
from dp2ddp.review import data_parallel
from dp2ddp.review.check_rule import CheckRule, Problem, check_rules
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.files import acts, may_matter
from dp2ddp.review.own_file import OwnFile
from dp2ddp.review.problems import Answer, Level, PlacedProblem, Tell, Unread
from dp2ddp.source.files import SourceFile
from dp2ddp.source.git import as_typed
from dp2ddp.source.neighbours import does_something
from dp2ddp.source.parsing import forget_trees, garbage_waits
from dp2ddp.source.projects import Imports, project_of, read_project
from dp2ddp.source.read_source import read_source

PARALLEL = 12  # files; from there on more processes are worth their start
PLANS = "planning conversions"
HIDDEN = "DDP208"


@dataclass
class _Look:
    """All answers so far."""

    tell: Tell
    answers: list[Answer] = field(default_factory=list)

    def at(self, paths: Sequence[str], ask: Callable[[str], Answer], doing: str) -> dict[str, Answer]:
        """What is found at these files, in their order."""
        answers = {}
        for path, answer in zip(paths, _run_all(ask, paths), strict=True):
            answers[path] = answer
            self.tell(f"{doing}: {len(answers):,} of {len(paths):,}")
        self.answers += answers.values()
        return answers

    def unplanned(self, paths: Iterable[str]) -> list[str]:
        """The files that were planned with no script so far."""
        planned = {os.path.realpath(path) for answer in self.answers for path in answer.planned}
        return sorted(path for path in set(paths) if os.path.realpath(path) not in planned)


def look_at_hits(hits: Sequence[str], scripts: Sequence[str], names: Sequence[str], tell: Tell) -> Answer:
    """Everything that is found in files that mention DataParallel or ranks, and in what `scripts` import.

    A module that wraps models is read with the scripts that import it: first those that were named or mention
    DataParallel themselves, then, for modules that none of them reaches, other importers.
    """
    _imports.cache_clear()  # files may have changed since the last run of this process
    look = _Look(tell)
    followed = look.at(scripts, _follow, "following imports")
    found = (*(path for answer in followed.values() for path in answer.leads_to), *hits)
    files = {os.path.realpath(path): path for path in found}
    read = look.at([*files.values()], _check_one, "reading files")
    own = [path for path, answer in read.items() if answer.leads_to]
    leading = (path for path in scripts if any(map(data_parallel.may_wrap, followed[path].leads_to)))
    look.at([*dict.fromkeys((*leading, *filter(acts, own)))], _check_as_entry, PLANS)
    rest = look.unplanned(own)
    for path in data_parallel.importers_of(rest, names):
        if not look.unplanned(rest):
            break
        look.at([path], _check_as_entry, PLANS)
    look.at(look.unplanned(own), _check_as_module, "reading modules")
    unread = dict.fromkeys(each for answer in look.answers for each in answer.unread)
    problems = [each for answer in look.answers for each in answer.problems]
    return Answer(_named_as(names, problems), [*unread])


def look_at_text(name: str, text: str) -> Answer:
    """Everything that is found in one file, whose text is not what lies on the disk: an editor has it."""
    source = SourceFile(Path(name), text)
    answers = [_run(lambda path: _check_source(source), name)]
    if answers[0].leads_to:
        answers.append(_run(lambda path: _check_wraps(source), name))
    problems = [problem for answer in answers for problem in answer.problems if problem.file == name]
    return Answer(problems, [each for answer in answers for each in answer.unread])


def _check_wraps(source: SourceFile) -> Answer:
    """What stands in the way of the DataParallel of a text."""
    if does_something(source.text.encode(errors="replace")):
        return data_parallel.check_project(source.name, project_of(source))
    return Answer(data_parallel.note_wraps(OwnFile(source)))


def _named_as(names: Sequence[str], problems: Sequence[PlacedProblem]) -> list[PlacedProblem]:
    """Problems with the names of their files as the user wrote them, each once: several scripts may read a module."""
    others = {problem.file for problem in problems}.difference(names)
    by_path = {os.path.realpath(name): name for name in names} if others else {}  # 10 ms for 1,000 names
    typed = {file: by_path.get(os.path.realpath(file), file) for file in others}
    different: dict[tuple[object, ...], PlacedProblem] = {}
    for problem in problems:
        problem = replace(problem, file=typed.get(problem.file, problem.file))
        different.setdefault(problem.order, problem)
    return [*different.values()]


def _run_all(ask: Callable[[str], Answer], paths: Sequence[str]) -> Iterator[Answer]:
    run = partial(_run, ask)
    count = min(os.cpu_count() or 1, len(paths) // PARALLEL + 1)
    if count < 2:
        yield from map(run, paths)
        return
    from concurrent.futures import ProcessPoolExecutor  # takes as long to import as a file to check

    with ProcessPoolExecutor(count) as pool:
        yield from pool.map(run, paths, chunksize=4)


def _run(ask: Callable[[str], Answer], path: str) -> Answer:
    """One answer; nothing else of it is kept, so that memory stays flat.

    A fault of ours in one file is said, and does not hide what is in the others.
    """
    with garbage_waits():
        try:
            return ask(path)
        except (SourceError, OSError) as error:
            return Answer(unread=[Unread(path, str(error))])
        except Exception as error:
            return Answer(unread=[Unread.by_fault(path, "could not be looked at", error)])
        finally:
            forget_trees()
            gc.collect(1)


def _check_one(path: str) -> Answer:
    return _check_source(read_source(path))


def _check_source(source: SourceFile) -> Answer:
    file = OwnFile(source)
    own = [source.name] if data_parallel.names_data_parallel(file) else []
    return replace(check_file(file, check_rules()), leads_to=own)


def _follow(path: str) -> Answer:
    """What a script that was named itself imports: its local modules belong to it, wherever they are."""
    modules = (as_typed(file) for file in sorted(_imports().reached(Path(path))) if file.suffix == ".py")
    return Answer(leads_to=[str(file) for file in modules if may_matter(str(file))])


@lru_cache(maxsize=1)
def _imports() -> Imports:
    """What files import, each read once in a run and process."""
    return Imports()


def _check_as_entry(path: str) -> Answer:
    modules = [str(as_typed(file)) for file in _imports().reached(Path(path))]
    if len(modules) > data_parallel.MOST:
        return data_parallel.note_all_wraps(path, [path, *modules])
    return data_parallel.check_project(path, read_project(path))


def _check_as_module(path: str) -> Answer:
    return Answer(data_parallel.note_wraps(OwnFile(read_source(path))))


# --- one file


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
    placed = [each.placed(module, HIDDEN, Level.NOTE) for each in _counting(file, HIDDEN, hidden)]
    faults: list[Unread] = []
    for rule in rules:
        try:
            found = _counting(file, rule.code, rule.find(read))
            placed += [each.placed(module, rule.code, rule.level) for each in found]
        except Exception as error:
            faults.append(Unread.by_fault(file.source.name, f"{rule.code} could not look at it", error))
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
