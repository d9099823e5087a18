"""Where the size of a batch comes from: divided there, if it is read elsewhere too."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.codemod.small.start import first_act
from dp2ddp.codemod.small_idiomatic.loaders import Loader, loaders_of
from dp2ddp.codemod.small_idiomatic.looking import last_word

SHOWS = {"print", "info", "format", "warning", "debug"}


@dataclass(frozen=True)
class Origin:
    """A variable with the size of a batch, and the statement behind which it can be divided; None: at the start."""

    module: Module
    text: str
    behind: ast.stmt | None


@lru_cache(maxsize=8)
def origins_of(program: Program) -> dict[str, Origin]:
    """The sizes that are divided where they come from, by their last words."""
    origins = {}
    for loader in loaders_of(program):
        size = loader.argument("batch_size")
        if (
            loader.is_shared
            and isinstance(size, (ast.Name, ast.Attribute))
            and _is_read_elsewhere(loader, size)
        ):
            origin = _origin(loader.module, size)
            if origin is not None:
                origins[last_word(size)] = origin
    return origins


def _is_read_elsewhere(loader: Loader, size: ast.expr) -> bool:
    """Whether anything but loaders and lines that show it reads the size."""
    program, word = loader.module.program, last_word(size)
    of_loaders = {each.argument("batch_size") for each in loaders_of(program)}
    for module in program.modules:
        for node in module.nodes(ast.Name, ast.Attribute):
            reads = last_word(node) == word and isinstance(node.ctx, ast.Load)  # type: ignore[attr-defined]
            if reads and node not in of_loaders and not _is_shown(module, node):
                return True
    return False


def _is_shown(module: Module, node: ast.AST) -> bool:
    calls = (each for each in module.around(node) if isinstance(each, ast.Call))
    return any((last_word(each.func) in SHOWS) for each in calls)


def _origin(module: Module, size: ast.Name | ast.Attribute) -> Origin | None:
    """The one statement of the file that gives the variable, or the object that has it, its value."""
    owner = size if isinstance(size, ast.Name) else size.value
    if not isinstance(owner, ast.Name) or (scope := module.scope_of[owner].lookup(owner.id)) is None:
        return None
    bindings = scope.bindings[owner.id]
    if len(bindings) != 1 or bindings[0].how is not Binds.VALUE or bindings[0].node is None:
        return None
    statement = module.statement(bindings[0].node)
    act = first_act(module) if module is module.program.entry else None
    if scope is not module.top:
        return Origin(module, module.text(size), statement)
    if act is None:
        return None
    return Origin(module, module.text(size), statement if statement.lineno >= act.lineno else None)
