"""Whether a seed may be None."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import COMPREHENSIONS, LOOPS
from dp2ddp.codemod.uses import DEPTH

NUMBERS = tuple(f"builtins.{name}" for name in ("int", "hash", "sum", "len", "abs", "round", "ord"))


def may_be_none(module: Module, node: ast.AST, depth: int = DEPTH) -> bool:
    """Whether a seed may be None, by what is seen of it: constants, options' defaults, what a function is given.

    `torch.manual_seed(seed)` of the same text, anywhere in the program, says that it is a number.
    """
    if _is_a_number_elsewhere(module, node):
        return False
    match node:
        case ast.Constant(value=value):
            return value is None
        case ast.BinOp() | ast.UnaryOp() | ast.List() | ast.Tuple():
            return False
        case ast.IfExp(body=body, orelse=other):
            return may_be_none(module, body, depth) or may_be_none(module, other, depth)
        case ast.Call(func=func):
            return module.name(func) not in NUMBERS
        case ast.Attribute(attr=attr):
            defaults = list(_defaults(module, attr))
            return any(defaults) or not defaults
        case ast.Name() if depth:
            return any(_may_bring_none(module, node, depth - 1))
    return True


def _may_bring_none(module: Module, node: ast.Name, depth: int) -> Iterator[bool]:
    """Whether None may come by each of the ways in which a name is bound."""
    scope = module.scope_of[node].lookup(node.id)
    if scope is None:
        yield True
        return
    yield from (may_be_none(module, value, depth) for value in module.values(node))
    arguments = getattr(scope.node, "args", None)
    if isinstance(arguments, ast.arguments) and node.id in [
        each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)
    ]:
        yield from _may_be_given_none(module, scope.node, arguments, node.id, depth)
    for each in module.by_word[node.id]:
        is_bound = (
            isinstance(each.ctx, ast.Store) and module.scope_of[each] is scope and isinstance(each, ast.Name)
        )
        if is_bound and not isinstance(module.parents[each], (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            yield not isinstance(module.parents[each], (*LOOPS, *COMPREHENSIONS, ast.comprehension))


def _may_be_given_none(
    module: Module, function: ast.AST, arguments: ast.arguments, name: str, depth: int
) -> Iterator[bool]:
    """By its default, and by what calls of a function of this name give; one that nobody calls is given numbers."""
    places = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    defaults = dict(zip(reversed(places), reversed(arguments.defaults), strict=False))
    defaults |= {
        each.arg: default
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default
    }
    if name in defaults:
        yield may_be_none(module, defaults[name], depth)
    word = getattr(function, "name", "")
    is_method = isinstance(module.parents.get(function), ast.ClassDef)
    if word == "__init__":
        word = module.parents[function].name  # type: ignore[attr-defined]  # it is that of a class
    for home in module.program.modules:
        for call in home.calls:
            if word in (call.method, getattr(call.node.func, "id", None)):
                place = places.index(name) - is_method if name in places else None
                given = call.argument(place, name)
                yield given is not None and may_be_none(home, given, depth) or call.may_have_more


def _is_a_number_elsewhere(module: Module, node: ast.AST) -> bool:
    text = ast.unparse(node)
    seeds = (call for each in module.program.modules for call in each.calls if does(call.name) is Does.SEED)
    return any(ast.unparse(call.node.args[0]) == text for call in seeds if call.node.args)


def _defaults(module: Module, option: str) -> Iterator[bool]:
    """Whether each `add_argument` of this option may leave None."""
    for each in module.program.modules:
        for call in each.calls:
            names = [str(given.value) for given in call.node.args if isinstance(given, ast.Constant)]
            if call.method == "add_argument" and option in [
                name.lstrip("-").replace("-", "_") for name in names
            ]:
                default = call.keyword("default")
                is_required = call.keyword("required") is not None or not names[0].startswith("-")
                yield not is_required and (default is None or may_be_none(each, default.value, 0))
