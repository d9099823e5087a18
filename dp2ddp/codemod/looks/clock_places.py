"""What calls and objects do with a number that comes by: local looks for the course of a clock."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.shown import ASKS, COMPUTES, GIVES_BACK, HOLDERS, LOGGERS, SHOWING, SHOWS
from dp2ddp.codemod.looks.uses import loads
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import COMPREHENSIONS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds


def shows(module: Module, node: ast.Call) -> bool:
    """Whether a call does nothing but show what it is given."""
    call = Call(node, module.name(node.func))
    name = call.name or ""
    is_logger = call.method in SHOWS - module.program.methods and (not name or name.startswith(LOGGERS))
    return name.startswith(SHOWING) or is_logger


def has_effects(module: Module, node: ast.AST | None) -> bool:
    """Whether an expression, or a function, does anything but compute."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)] if node else []
    return not all(_only_computes(Call(each, module.name(each.func))) for each in calls)


def _only_computes(call: Call) -> bool:
    if call.name is None:
        return call.method in GIVES_BACK
    return does(call.name) in (None, Does.CLOCK, Does.CALENDAR) and call.name.startswith((*COMPUTES, *ASKS))


def is_holder(module: Module, owner: ast.AST) -> bool:
    """Whether an object only keeps what it is given: a display, a bar, an object of a class of the program."""
    match owner:
        case ast.Subscript(value=value):
            return is_holder(module, value)
        case ast.Name(id="self" | "cls"):
            return True
        case ast.Name():
            made = [(module, each) for each in module.bindings(owner)]
        case ast.Attribute(attr=attr):
            made = module.program.attributes.get(attr, [])
        case _:
            return False
    return bool(made) and all(
        each.how is Binds.VALUE and _is_made_here(home, each.node) for home, each in made
    )


def _is_made_here(module: Module, node: ast.AST | None) -> bool:
    if isinstance(node, (ast.List, ast.Dict, ast.Set, *COMPREHENSIONS)):
        return True
    name = (module.name(node.func) if isinstance(node, ast.Call) else None) or ""
    return module.program.is_local(name) or name.startswith(HOLDERS)


def builds_text(module: Module, call: ast.Call) -> bool:
    """`words.append(x)`, of a list that is only filled and joined."""
    match call.func:
        case ast.Attribute(value=ast.Name() as owner, attr="append"):
            return all(_is_filled_or_joined(home, use) for home, use in loads(module, owner))
    return False


def _is_filled_or_joined(module: Module, use: ast.AST) -> bool:
    match module.parents[use]:
        case ast.Attribute(attr="append") | ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join")):
            return True
    return False


def asks_for_all_names(module: Module, name: ast.AST) -> bool:
    """`"{loss} {t}".format(**locals())`."""
    function = module.function_around(name)
    uses = (each for word in ("locals", "vars", "globals") for each in module.by_word.get(word, ()))
    return any(module.function_around(each) is function for each in uses)


@lru_cache(maxsize=1)
def got_by_name(program: Program) -> set[object]:
    """`getattr(run, "begin")`."""
    asks = (call.argument(1) for _, call in program.calls if call.name == "builtins.getattr")
    return {getattr(each, "value", None) for each in asks}


def uses_of(module: Module, function: ast.FunctionDef) -> Iterator[tuple[Module, ast.AST]]:
    """Where a function is called; a method, of any object, or read as a property."""
    is_method = isinstance(module.parents[function], ast.ClassDef)
    for home in module.program.modules:
        for node in home.by_word.get(function.name, ()):
            if isinstance(node.ctx, ast.Load) and (isinstance(node, ast.Attribute) or not is_method):
                around = home.parents[node]
                yield home, around if isinstance(around, ast.Call) and around.func is node else node
