"""What stands in the way of converting DataParallel code: the conversion's own plan, read as problems."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dp2ddp.codemod.conversion import MENTION, Options
from dp2ddp.codemod.edits import DropImport, Hazard, Remove
from dp2ddp.codemod.knowledge.derived import CLASSES
from dp2ddp.codemod.plans.planned import WRAP_RULE, WRAP_RULES, Plan, listed
from dp2ddp.errors import Dp2DdpError, SourceError
from dp2ddp.review.check_rule import Problem
from dp2ddp.review.files import acts, read_bytes
from dp2ddp.review.own_file import OwnFile
from dp2ddp.review.problems import Answer, Level, PlacedProblem
from dp2ddp.source.neighbours import import_of
from dp2ddp.source.projects import Project
from dp2ddp.source.read_source import read_source
from dp2ddp.words import counted

WRAPPED = "DataParallel: one process for all GPUs"
NO_ENTRY = "dp2ddp convert the script that starts the training: none of the files at hand leads here"
MOST = 500  # modules of a script; to plan the conversion of more takes minutes, and gigabytes


def names_data_parallel(file: OwnFile) -> bool:
    """Whether the code of a file names DataParallel; what stands in comments and texts wraps nothing."""
    words = [*file.module.by_word, *".".join(file.module.top.imported()).split(".")]
    return any(MENTION.fullmatch(word) for word in words) or "torch.nn" in file.module.stars


def may_wrap(path: str) -> bool:
    """Whether DataParallel stands in a file; wherever."""
    return MENTION.search(read_bytes(path).decode(errors="replace")) is not None


def importers_of(modules: Collection[str], paths: Sequence[str]) -> Iterator[str]:
    """The files that do something, and have the name of one of these modules in an import."""
    imports = import_of([Path(path) for path in modules])
    for path in paths if modules else ():
        if (
            path not in modules
            and os.access(path, os.R_OK)
            and imports.search(read_bytes(path))
            and acts(path)
        ):
            yield path


def check_project(entry: str, project: Project) -> Answer:
    """The problems of a script and of the local modules that it reaches; SourceError if the script is no Python."""
    read = [entry, *(str(module.source.path) for module in project.modules if module.source.path)]
    try:
        return Answer([*_planned(entry, project)], planned=read)
    except SourceError:
        raise
    except (Dp2DdpError, RecursionError):
        return Answer(planned=read)  # converted with another script; or nested too deeply: convert says so


def note_all_wraps(entry: str, files: Sequence[str]) -> Answer:
    """The wraps of a script with too many modules to plan its conversion on the way, and of these."""
    advice = f"{_convert(entry)} says what stands in the way: it has {len(files):,} modules"
    wrapping = (OwnFile(read_source(path)) for path in files if may_wrap(path))
    return Answer([problem for file in wrapping for problem in note_wraps(file, advice)], planned=files)


def note_wraps(file: OwnFile, advice: str = NO_ENTRY) -> list[PlacedProblem]:
    """The wraps of a file; by default one that no script at hand leads to: what convert would do depends on it."""
    calls = file.calls_of(*CLASSES, "torch.nn.parallel.data_parallel")
    problems = (Problem(call.node, WRAPPED, advice) for call in calls)
    return [problem.placed(file.module, WRAP_RULE, Level.NOTE) for problem in problems]


def _planned(entry: str, project: Project) -> Iterator[PlacedProblem]:
    from dp2ddp.codemod.convert import plan_program  # reads a script only where one is found

    planned = plan_program(project, Options())
    if planned is None:
        return
    for each in planned.plans:
        file = entry if each.module is each.module.program.entry else each.module.shown
        for hazard in each.hazards:
            assert isinstance(hazard.finding, Hazard)
            problem = Problem(hazard.finding.node, hazard.because, hazard.finding.advice)
            yield replace(problem.placed(each.module, hazard.code, Level.ERROR), file=file)
        edits = (edit for edit in each.edits if edit.code in WRAP_RULES and planned.converts)
        # an import goes with it
        wraps = [edit for edit in edits if not isinstance(edit.finding, (DropImport, Remove))]
        for wrap in {wrap.line: wrap for wrap in reversed(wraps)}.values():  # the first on its line
            problem = Problem(wrap.finding.node, WRAPPED, f"{_convert(entry)}: {_result(planned.plans)}")
            yield replace(problem.placed(each.module, wrap.code, Level.NOTE), file=file)


def _convert(entry: str) -> str:
    """The command that converts a script."""
    return f"dp2ddp convert {shlex.quote(os.path.relpath(entry))}"


def _result(files: Sequence[Plan]) -> str:
    """What convert would do, in short."""
    edits = sum(len(listed(each.edits)) for each in files)
    hazards = sum(len(each.hazards) for each in files)
    changed = sum(bool(each.edits) for each in files)
    size = f"{counted(edits, 'edit')} in {counted(changed, 'file')}"
    return f"{size}, {counted(hazards, 'hazard')} to answer" if hazards else size
