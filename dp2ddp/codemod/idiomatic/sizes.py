"""Numbers that the text tells; where the size of a batch comes from: divided there, if it is read elsewhere too."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.idiomatic.loaders import FoundLoader, loaders_of
from dp2ddp.codemod.idiomatic.looking import last_word
from dp2ddp.codemod.model.flow import Source, pairs
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.codemod.start import first_act

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


def _is_read_elsewhere(loader: FoundLoader, size: ast.expr) -> bool:
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


MAKERS = tuple(f"torch.{name}" for name in ("randn", "rand", "zeros", "ones", "empty", "arange"))
KEEPS = {"float", "long", "double", "to", "clamp"}


def number_of(module: Module, node: ast.expr | None) -> int | None:
    """A whole number, where the text says which: `64`, `BATCH = 64`."""
    origins = module.program.flow.origins(module, node) if node is not None else ()
    numbers = {each.value if isinstance(each, ast.Constant) else None for _, each in origins}
    number = numbers.pop() if len(numbers) == 1 else None
    return number if isinstance(number, int) else None


def samples_of(module: Module, dataset: ast.expr | None) -> int | None:
    """How many samples a data set has: `TensorDataset(torch.randn(1000, 8), ...)`."""
    home, made = _made(module, dataset)
    if made is None or home.name(made.func) != "torch.utils.data.TensorDataset" or not made.args:
        return None
    home, first = _made(home, made.args[0])
    while first is not None and isinstance(first.func, ast.Attribute) and first.func.attr in KEEPS:
        home, first = _made(home, first.func.value)
    if first is None or home.name(first.func) not in MAKERS or not first.args:
        return None
    return number_of(home, first.args[0])


def _made(module: Module, node: ast.expr | None) -> tuple[Module, ast.Call | None]:
    """The one call that an expression comes from, and its file."""
    match origins_of_value(module, node):
        case [(home, ast.Call() as call)]:
            return home, call
    return module, None


def origins_of_value(module: Module, node: ast.expr | None) -> tuple[Source, ...]:
    """Where a value comes from, also by `a, b = x, y`."""
    origins = module.program.flow.origins(module, node) if node is not None else ()
    match origins:
        case [(home, ast.Name(id=name) as only)]:
            assigned = (pair for each in home.all(ast.Assign) for pair in pairs(each))
            values = [
                value
                for target, value in assigned
                if isinstance(target, ast.Name)
                and target.id == name
                and home.scope_of[target] is home.scope_of[only]
            ]
            return ((home, values[0]),) if len(values) == 1 else origins
    return origins
