"""A project as the rules look at it: parsed, its names resolved, without what is no Python and what is dp2ddp's own."""

from __future__ import annotations

from dataclasses import replace

from dp2ddp.codemod.conversion import MENTION
from dp2ddp.codemod.knowledge import canonical, knows
from dp2ddp.codemod.lookups import LOOKUPS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.ours import is_of_dp2ddp, read_tree
from dp2ddp.errors import SourceError
from dp2ddp.source.console_scripts import console_script
from dp2ddp.source.parsing import parse
from dp2ddp.source.projects import LocalModule, Project


def read_program(project: Project) -> Program:
    """The program that a script and its local modules are; its `project.unread` names modules that are no Python.

    SourceError for one of them that names DataParallel: half a conversion helps nobody.
    """
    command = console_script(project.entry.path) if project.entry.path else None
    starts = frozenset([command.function] if command else [])
    return Program(_readable(project), canonical, knows, LOOKUPS, starts, read_tree)


def _readable(project: Project) -> Project:
    modules: list[LocalModule] = []
    unread: list[str] = []
    for module in project.modules:
        if is_of_dp2ddp(module.name):
            continue
        try:
            parse(module.source)
            modules.append(module)
        except SourceError as error:
            if MENTION.search(module.source.text):
                raise
            unread.append(str(error))
    return replace(project, modules=tuple(modules), unread=(*project.unread, *unread))
