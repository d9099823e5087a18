"""A project as the rules look at it: parsed, its names resolved, without what is no Python and what is dp2ddp's own."""

import ast
from dataclasses import replace

from dp2ddp.codemod.conversion import MENTION
from dp2ddp.codemod.knowledge.libraries import is_known_library
from dp2ddp.codemod.knowledge.wrapping_libraries import IMPORTS
from dp2ddp.codemod.lift import import_lines
from dp2ddp.codemod.looks.ours import is_of_dp2ddp
from dp2ddp.codemod.model.program import Program
from dp2ddp.errors import SourceError
from dp2ddp.source.helper_module import NAME
from dp2ddp.source.neighbours import started_function
from dp2ddp.source.parsing import parse, parse_leniently
from dp2ddp.source.projects import LocalModule, Project


def read_program(project: Project) -> Program:
    """The program that a script and its local modules are; its `project.unread` names modules that are no Python.

    SourceError for one of them that names DataParallel: half a conversion helps nobody.
    """
    function = started_function(project.entry.path) if project.entry.path else None
    return Program(_readable(project), frozenset([function] if function else []))


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


def unread_libraries(project: Project) -> tuple[str, ...]:
    """One line for each library that a project imports and that may do anything with its models."""
    local = {each.name.partition(".")[0] for each in project.modules} | {*project.missing}
    sources = (project.entry, *(each.source for each in project.modules))
    trees = (parse_leniently(source.text) for source in sources)
    imported = (line for tree in trees if tree for node in ast.walk(tree) for line in import_lines(node))
    tops = {line.module.partition(".")[0] for line in imported}
    # read for what wraps
    tops = {top for top in tops - local - {"", NAME} if not IMPORTS.match(f"import {top}")}
    unknown = sorted(top for top in tops if not is_known_library(top))
    return tuple(
        f"{name}: if this library wraps models in DataParallel by itself, that was not seen"
        for name in unknown
    )
