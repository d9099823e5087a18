"""The number of the epoch, where a loop over a loader begins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

from dp2ddp.codemod.idiomatic.loaders import Loop
from dp2ddp.codemod.idiomatic.looking import calls_in, last_word
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import FUNCTIONS

NAMES = re.compile(
    r"(i_|cur_?|current_|num_)?(ep|epoch|epoch_?(id|idx|index|num|number|nr|no|i))$", re.IGNORECASE
)
COUNTING = ("range", "trange", "count")


@dataclass(frozen=True)
class Epoch:
    """What to say before which statement."""

    module: Module
    before: ast.stmt
    loader: str
    number: str


def epochs_of(loop: Loop, is_alone: bool, targets: Set[str]) -> Iterator[Epoch]:
    """Where samplers are told their epoch: at the loop, or else where its function is called with their loaders."""
    module, shown = loop.module, loop.shown
    if not isinstance(loop.node, ast.For) or not isinstance(shown, (ast.Name, ast.Attribute, ast.Subscript)):
        return
    function = module.function_around(loop.node)
    number = _number_at(module, shown) or _parameter(function)
    if number and is_alone:
        yield Epoch(module, module.statement(shown), module.text(shown), number)
    elif function:
        calls = [each for each in _at_calls(module, function, shown) if each]
        chosen = [each for each in calls if re.split(r"\W", each.loader)[-1] in targets]
        yield from calls[:1] if is_alone else chosen


def _number_at(module: Module, node: ast.AST) -> str | None:
    """The variable of a loop around a statement that counts epochs."""
    for each in module.around(node):
        if isinstance(each, FUNCTIONS):
            return None
        match each:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=called)):
                if last_word(called) in COUNTING or NAMES.fullmatch(name):
                    return name
            case ast.For(target=ast.Name(id=name)) if NAMES.fullmatch(name):
                return name
    return None


def _parameter(function: ast.AST | None) -> str | None:
    if not isinstance(function, ast.FunctionDef):
        return None
    return next((each.arg for each in function.args.args if NAMES.fullmatch(each.arg)), None)


def _at_calls(module: Module, function: ast.AST, shown: ast.expr) -> Iterator[Epoch | None]:
    name = getattr(function, "name", "")
    for each, call in calls_in(module.program):
        if name and name == last_word(call.node.func):
            number = _number_at(each, call.node)
            loader = _seen_from(module, function, shown, each, call.node)
            yield Epoch(each, each.statement(call.node), loader, number) if number and loader else None


def _seen_from(
    module: Module, function: ast.AST, shown: ast.expr, caller: Module, call: ast.Call
) -> str | None:
    """The loader of a function, as its caller would write it."""
    text = module.text(shown)
    if isinstance(shown, ast.Attribute) and text.startswith("self."):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        return f"{caller.text(owner)}.{text.removeprefix('self.')}" if owner is not None else None
    if not isinstance(shown, ast.Name) or not isinstance(function, ast.FunctionDef):
        return None
    names = [each.arg for each in function.args.args]
    if shown.id in names:
        place = names.index(shown.id) - (names[0] == "self")
        by_name = next((each.value for each in call.keywords if each.arg == shown.id), None)
        given = by_name or (call.args[place] if place < len(call.args) else None)
        return caller.text(given) if isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)) else None
    scope = module.scope_of[shown].lookup(shown.id)
    return text if scope is module.top and caller is module else None
