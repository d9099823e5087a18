"""The idiomatic style on one page: Program → rules → plans → Conversion. Read this first.

It promises no sameness, so it refuses little: where nothing right can be written, a comment (`# dp2ddp: ...`) says what
a person must decide, and the report lists what is no longer the same.
"""

from functools import lru_cache

from dp2ddp.codemod.conversion import Conversion, FileConversion, Options, untouched
from dp2ddp.codemod.idiomatic.ddp710_idiomatic_differences import find_differences, find_kept
from dp2ddp.codemod.idiomatic.new_names import make_header
from dp2ddp.codemod.launch import job_of
from dp2ddp.codemod.looks.hidden_wraps import hidden_wraps
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.looks.wraps import find_wraps, largest_count
from dp2ddp.codemod.plans.plan import edited, plan_file
from dp2ddp.codemod.reading import read_program
from dp2ddp.codemod.rule import Rule, pick_rules, rules_in
from dp2ddp.codemod.rules.ddp104_async_argument import AsyncArgument
from dp2ddp.codemod.rules.ddp208_library_wraps import LibraryWraps
from dp2ddp.codemod.rules.ddp305_library_differs import LibraryDiffers
from dp2ddp.codemod.rules.ddp911_notebook_only import NotebookOnly
from dp2ddp.source.projects import Project
from dp2ddp.styles import IDIOMATIC

OF_LIBRARIES = (LibraryWraps(), LibraryDiffers())  # of a script whose model a library wraps


def convert_idiomatic(project: Project, options: Options) -> Conversion:
    """Convert the entry script of a project and its local modules; nothing is imported, run or written."""
    program = read_program(project)
    wraps = find_wraps(program)
    if not wraps and not hidden_wraps(program):
        return untouched(project, IDIOMATIC)
    rules = pick_rules(all_rules() if wraps else OF_LIBRARIES, options.select, options.ignore)
    plans = [plan_file(module, rules, options.accept) for module in of_the_user(program)]
    refused = any(each.hazards for each in plans)
    files = [
        FileConversion(
            each.module.source, each.module.source.text if refused else edited(each, make_header(each)), each
        )
        for each in plans
    ]
    is_project = bool(project.entry_names) or any(file.changed for file in files[1:])
    return Conversion(
        program.project,
        files[0],
        job_of(program, None, is_project),
        tuple(file for file in files[1:] if file.changed or file.plan and file.plan.hazards),
        style=IDIOMATIC,
        world=largest_count(wraps),
        differences=find_differences(program),
        kept=tuple(find_kept(program)),
        unread=program.project.unread,
    )


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """The rules of this style, by code: a rule exists by being a file; two are the exact style's."""
    return (AsyncArgument(), *rules_in(__package__, Rule), NotebookOnly())
