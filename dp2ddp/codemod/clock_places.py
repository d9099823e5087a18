"""What calls and objects do with a number that comes by: local looks for the course of a clock."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.shown import ASKS, COMPUTES, GIVES_BACK, HOLDERS, LOGGERS, SHOWING, SHOWS
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import COMPREHENSIONS
from dp2ddp.codemod.uses import loads
from dp2ddp.source.parsing import nodes_in


def shows(module: Module, node: ast.Call) -> bool:
    """Whether a call does nothing but show what it is given."""
    call = Call(node, module.name(node.func))
    name = call.name or ""
    is_logger = call.method in SHOWS - module.program.methods and (not name or name.startswith(LOGGERS))
    return name.startswith(SHOWING) or is_logger


def has_effects(module: Module, node: ast.AST | None) -> bool:
    """Whether an expression, or a function, does anything but compute."""
    calls = [each for each in nodes_in(node) if isinstance(each, ast.Call)] if node else []
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
            made = [(module, each) for each in _bound_to(module, owner)]
        case ast.Attribute(attr=attr):
            made = list(set_to(module, attr))
        case _:
            return False
    return bool(made) and all(_is_made_here(home, value) for home, value in made)


def _bound_to(module: Module, name: ast.Name) -> Iterator[ast.AST]:
    """What a name is bound to, in its scope; a parameter to itself."""
    scope = module.scope_of[name].lookup(name.id)
    if scope is None or any(each.arg == name.id for each in _parameters(scope.node)):
        yield name
    for node in module.by_word.get(name.id, ()):
        is_bound = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if is_bound and module.scope_of[node].lookup(name.id) is scope:
            yield _value_of(module, node)


def _value_of(module: Module, target: ast.expr) -> ast.AST:
    """The expression that a target is set to, also in `a, b = x, y`; else the statement."""
    around = module.parents[target]
    match around:
        case ast.Assign(targets=[only]) if only is target:
            return around.value
        case ast.Tuple(elts=targets):
            match module.parents[around]:
                case ast.Assign(value=ast.Tuple(elts=values)) if len(values) == len(targets):
                    return values[targets.index(target)]
    return around


def _parameters(function: ast.AST) -> list[ast.arg]:
    arguments = getattr(function, "args", None)
    if not isinstance(arguments, ast.arguments):
        return []
    return [each for each in nodes_in(arguments) if isinstance(each, ast.arg)]


def set_to(module: Module, attribute: str) -> Iterator[tuple[Module, ast.AST]]:
    """What an attribute is set to, of any object."""
    for home in module.program.modules:
        for node in home.by_word.get(attribute, ()):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield home, _value_of(home, node)


def _is_made_here(module: Module, node: ast.AST) -> bool:
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


def may_be_got_by_name(module: Module, attribute: str) -> bool:
    """`getattr(run, "begin")`."""
    calls = (
        call for each in module.program.modules for call in each.calls if call.name == "builtins.getattr"
    )
    given = (call.argument(1) for call in calls)
    return any(isinstance(each, ast.Constant) and each.value == attribute for each in given)


def parameter(function: ast.FunctionDef, call: ast.Call, argument: ast.AST, skip: int) -> ast.arg | None:
    """The parameter that an argument of a call comes in by; `skip`: self."""
    places = [*function.args.posonlyargs, *function.args.args][skip:]
    if isinstance(argument, ast.keyword):
        return next((each for each in (*places, *function.args.kwonlyargs) if each.arg == argument.arg), None)
    place = call.args.index(argument) if argument in call.args else len(places)
    is_starred = any(isinstance(each, ast.Starred) for each in call.args[: place + 1])
    return places[place] if place < len(places) and not is_starred else function.args.vararg


def methods_named(module: Module, name: str) -> Iterator[tuple[Module, ast.FunctionDef]]:
    """The methods of a name that the program's classes have."""
    for home in module.program.modules if name in module.program.methods else ():
        for function in home.all(ast.FunctionDef):
            if function.name == name and isinstance(home.parents[function], ast.ClassDef):
                yield home, function


def uses_of(module: Module, function: ast.FunctionDef) -> Iterator[tuple[Module, ast.AST]]:
    """Where a function is called; a method, of any object, or read as a property."""
    is_method = isinstance(module.parents[function], ast.ClassDef)
    for home in module.program.modules:
        for node in home.by_word.get(function.name, ()):
            if isinstance(node.ctx, ast.Load) and (isinstance(node, ast.Attribute) or not is_method):
                around = home.parents[node]
                yield home, around if isinstance(around, ast.Call) and around.func is node else node
