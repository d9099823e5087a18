"""The whole codemod on one page: Program → rules → plans → Conversion. Read this first."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dp2ddp.codemod.conversion import MENTION, Conversion, FileConversion, Options, untouched
from dp2ddp.codemod.helpers import HelperModule, HelperPlace, helper_module, make_header
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.launch import job_of, world_of
from dp2ddp.codemod.lift import all_templates
from dp2ddp.codemod.looks.hidden_wraps import does_its_own, hidden_wraps, library_wraps, may_wrap_hidden
from dp2ddp.codemod.looks.looked_up import lookups, may_look_up
from dp2ddp.codemod.looks.ours import (
    of_the_user,
    refuse_hidden_helpers,
    refuse_lone_script,
    refuse_other_helpers,
)
from dp2ddp.codemod.looks.start import join_of
from dp2ddp.codemod.looks.wraps import find_wraps, wraps_in
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.plans.acceptance import refuse_unmatched
from dp2ddp.codemod.plans.plan import edited, plan_file, with_unused_imports
from dp2ddp.codemod.plans.planned import Plan
from dp2ddp.codemod.reading import read_program, unread_libraries
from dp2ddp.codemod.rule import Rule, pick_rules, rules_of_style
from dp2ddp.errors import ConversionError
from dp2ddp.source.files import SourceFile
from dp2ddp.source.neighbours import find_mentions
from dp2ddp.source.parsing import garbage_waits, parse
from dp2ddp.source.projects import Project
from dp2ddp.styles import EXACT

# Of a project that does not use DataParallel this alone has something to say: it may be there in disguise.
OF_OTHERS = ("DDP902",)
# Where a library wraps, these say so; and where it trains by DistributedDataParallel on ranks, the wrap and the loader
# are its own, and these convert what the script does around it.
OF_LIBRARIES = ("DDP208", "DDP305")
AROUND_LIBRARIES = tuple(words("DDP101 DDP102 DDP301 DDP302 DDP5 DDP902 DDP906 DDP911"))
FOREIGN = re.compile(r"replication_callback|\bimport_module\(|\b__import__\(")


@dataclass(frozen=True)
class ProgramPlan:
    """What a conversion would do to each file of a program, before any text is changed."""

    program: Program
    plans: tuple[Plan, ...]

    @property
    def converts(self) -> bool:
        """Whether anything is written: ranks join somewhere, and a wrap becomes one for them."""
        joins = join_of(self.program.entry) is not None
        if library_wraps(self.program):
            edits = (edit for each in self.plans for edit in each.edits)
            is_around = any(edit.code != "DDP101" for edit in edits)  # beside the place where the ranks join
            return joins and (does_its_own(self.program) or is_around)
        return joins and any(each.wraps_converted for each in self.plans)

    @property
    def is_project(self) -> bool:
        """Whether more than the script itself changes, or its name must stay."""
        others = (each for each in self.plans if each.module is not self.program.entry)
        return bool(self.program.project.entry_names) or any(each.edits for each in others)


def convert(
    project: Project, options: Options | None = None, begin: Callable[[str], object] = str
) -> Conversion:
    """Convert the entry script of a project and its local modules; nothing is imported, run or written.

    `begin` gets a line for each part of the work when it begins: of 300 modules it takes seconds.
    """
    options = options or Options()
    try:
        with garbage_waits():
            if options.style == EXACT:
                conversion = _convert(project, options, begin)
            else:  # the exact style needs none of it
                from dp2ddp.codemod.idiomatic.convert import convert_idiomatic

                conversion = convert_idiomatic(project, options)
    except RecursionError as error:
        raise ConversionError(
            f"{project.entry.name}: nested too deeply to be converted, it or a module of its own"
        ) from error
    refuse_unmatched(options.accept, conversion.accepted, conversion.hazards, project.entry.name)
    return replace(conversion, unread=tuple(dict.fromkeys((*project.unread, *conversion.unread))))


def _convert(project: Project, options: Options, begin: Callable[[str], object]) -> Conversion:
    """The exact style.

    A hazard leaves its place as it is; the rest is converted, and the person answers it.
    """
    begin("1 of 2: planning the changes")
    planned = plan_program(project, options)
    if planned is None:
        return untouched(project, EXACT, unread_libraries(project))
    if not planned.converts:
        return _unchanged(planned)
    begin("2 of 2: changing the files")
    place = options.helpers
    if place is HelperPlace.IN_SCRIPT and planned.is_project:
        place = HelperPlace.BESIDE  # several files need them
    if place is HelperPlace.BESIDE:
        refuse_hidden_helpers(planned.program)
    library = all_templates()
    texts = [edited(each, make_header(each, place, library)) for each in planned.plans]
    helpers = _helpers(planned, options) if place is HelperPlace.BESIDE else None
    return _conversion(planned, texts, helpers)


def plan_program(project: Project, options: Options) -> ProgramPlan | None:
    """What converting would do, without doing it; None where nothing in the project is of DataParallel."""
    rules = pick_rules(rules_of_style(EXACT), options.select, options.ignore)
    named = _may_matter(project)
    if not named and not any(may_wrap_hidden(text) or may_look_up(text) for text in project.texts):
        parse(project.entry)  # a file that is no Python is an error all the same
        return None
    program = read_program(project)
    if not named and not hidden_wraps(program) and not any(map(any, map(lookups, of_the_user(program)))):
        return None
    refuse_other_helpers(program, frozenset(all_templates().homes))
    if not find_wraps(program):
        refuse_lone_script(program)
    chosen = _rules_for(program, rules)
    plans = tuple(plan_file(module, chosen, options.accept) for module in of_the_user(program))
    planned = ProgramPlan(program, plans)
    return replace(planned, plans=tuple(map(with_unused_imports, plans))) if planned.converts else planned


def _rules_for(program: Program, rules: Sequence[Rule]) -> Sequence[Rule]:
    """All rules; where nothing is wrapped for several devices, those that say what may be DataParallel all the same."""
    wraps = find_wraps(program)
    if any(not wrap.is_single for wrap in wraps):
        return rules
    if library_wraps(program):
        return [rule for rule in rules if rule.code.startswith((*OF_LIBRARIES, *AROUND_LIBRARIES))]
    codes = {*OF_OTHERS, *OF_LIBRARIES, *(["DDP201"] if wraps else [])}
    is_named = any(True for module in of_the_user(program) for _ in wraps_in(module))
    if not wraps and is_named and join_of(program.entry) is None:
        codes.add("DDP101")  # nothing runs, so nothing wraps
    return [rule for rule in rules if rule.code in codes]


def _may_matter(project: Project) -> bool:
    """Whether DataParallel is named anywhere, or may be looked up by a name that a file of settings gives."""
    if any(MENTION.search(text) or FOREIGN.search(text) for text in project.texts):
        return True
    path = project.entry.path
    return path is not None and any(map(may_look_up, project.texts)) and any(find_mentions(path.parent))


def _unchanged(planned: ProgramPlan) -> Conversion:
    """What is said, where nothing is written."""
    conversion = _conversion(planned, [each.module.source.text for each in planned.plans], None)
    wraps = find_wraps(planned.program) or hidden_wraps(planned.program)
    libraries = () if wraps else unread_libraries(planned.program.project)
    return replace(conversion, unread=(*conversion.unread, *libraries))


def _helpers(planned: ProgramPlan, options: Options) -> HelperModule | None:
    """The module with the helpers: in the folder that is first on sys.path, where every file finds it."""
    needed, project = frozenset().union(*(each.helpers for each in planned.plans)), planned.program.project
    there = project.helpers or SourceFile(project.helper_path, "")
    is_there, renew = project.helpers is not None, options.renew_helpers
    return helper_module(there, needed, all_templates(), is_there=is_there, renew=renew) if needed else None


def _conversion(planned: ProgramPlan, texts: Sequence[str], helpers: HelperModule | None) -> Conversion:
    program = planned.program
    entry = FileConversion(program.entry.source, program.entry.source.text)
    modules: list[FileConversion] = []
    for each, text in zip(planned.plans, texts, strict=True):
        file = FileConversion(each.module.source, text, each)
        if each.module is program.entry:
            entry = file
        elif file.changed or each.says_something:
            modules.append(file)
    world = world_of(program)
    job = job_of(program, world, planned.is_project)
    unread = program.project.unread
    return Conversion(program.project, entry, job, tuple(modules), helpers, world=world, unread=unread)
