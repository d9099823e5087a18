"""The new codemod on one page: Program → rules → plans → Conversion. Read this first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dp2ddp.codemod.apply import edit_text
from dp2ddp.codemod.checks import check_result
from dp2ddp.codemod.convert import Conversion, FileConversion, Options
from dp2ddp.codemod.helpers import HelperModule, helper_module
from dp2ddp.codemod.knowledge import canonical, knows
from dp2ddp.codemod.lift import Library, read_templates
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.small.header import make_header
from dp2ddp.codemod.small.mentions import is_type_test, mentions
from dp2ddp.codemod.small.own_mode import OwnMode
from dp2ddp.codemod.small.plan import FilePlan, plan_file
from dp2ddp.codemod.small.rule import all_rules
from dp2ddp.launch.job import Job, command_line, standalone_words
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project


def convert_small(project: Project, options: Options) -> Conversion:
    """Convert the entry script of a project and its local modules; nothing is imported, run or written."""
    program = Program(project, canonical, knows)
    if not wraps(program):
        return Conversion(FileConversion(project.entry, project.entry.text))
    rules = [rule for rule in all_rules() if not options.ignore or not rule.code.startswith(options.ignore)]
    plans = [plan_file(module, rules, options.accept) for module in program.modules]
    if any(each.plan.hazards for each in plans):
        return _conversion(program, plans, [each.module.source.text for each in plans], None)
    texts = [_edited(each) for each in plans]
    for each, text in zip(plans, texts, strict=True):
        check_result(each.module, each.plan, text)
    needed = frozenset().union(*(each.helpers for each in plans))
    there = project.helpers or SourceFile(project.helper_path, "")
    helpers = helper_module(there, needed, small_library(), is_there=project.helpers is not None)
    return _conversion(program, plans, texts, helpers)


def wraps(program: Program) -> bool:
    """Whether anything of DataParallel is used, not only asked for."""
    return any(
        not is_type_test(module, node) and not OwnMode(module).holds(node)
        for module in program.modules
        for node, _ in mentions(module, WRAPS)
    )


WRAPS = ("torch.nn.DataParallel", "torch.nn.parallel.data_parallel", "torch.nn.parallel.parallel_apply")


@lru_cache(maxsize=1)
def small_library() -> Library:
    """The helpers of the new codemod."""
    return Library(read_templates("dp2ddp.templates.small"))


def _edited(each: FilePlan) -> str:
    header = make_header(each.module, each.helpers)
    return edit_text(each.module, each.edits, header) if each.edits or header else each.module.source.text


def _conversion(
    program: Program, plans: Sequence[FilePlan], texts: Sequence[str], helpers: HelperModule | None
) -> Conversion:
    files = [
        FileConversion(each.module.source, text, each.plan) for each, text in zip(plans, texts, strict=True)
    ]
    keeps_name = bool(program.project.entry_names)
    is_project = keeps_name or any(file.changed for file in files[1:])
    return Conversion(
        files[0],
        tuple(
            file for file in files[1:] if file.changed or file.plan and (file.plan.hazards or file.plan.notes)
        ),
        helpers,
        keeps_name,
        launch=launch_line(program.entry, is_project),
    )


def launch_line(entry: Module, is_project: bool) -> str:
    """The torchrun line; `gpu` lets torchrun count the GPUs."""
    source = entry.source
    path = source.output if is_project else source.beside
    name = str(path) if path else "train_ddp.py"
    package = entry.program.project.entry_module.rpartition(".")[0]
    module = f"{package}.{name.rpartition('/')[2].removesuffix('.py')}" if package else None
    return command_line(standalone_words(Job(name, module, gpus=None)), {})
