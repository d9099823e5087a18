"""Whether a seed may be None."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.uses import DEPTH
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.scopes import Binds

NUMBERS = tuple(f"builtins.{name}" for name in ("int", "hash", "sum", "len", "abs", "round", "ord"))

UNSEEN = {Binds.PART, Binds.CONTEXT, Binds.CAUGHT}


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
            given = module.program.flow.given(module, node)
            return _is_unseen(module, node) or any(may_be_none(*each, depth - 1) for each in given)
    return True


def _is_unseen(module: Module, node: ast.Name) -> bool:
    """Whether a name may get what is not seen: by `with`, by unpacking, as one of `*args` or `**options`."""
    scope = module.scope_of[node].lookup(node.id)
    ways = {each.how for each in module.bindings(node)}
    if scope is None or ways & UNSEEN:
        return True
    function = scope.node
    is_init = getattr(function, "name", "") == "__init__"
    called = module.parents[function] if is_init else function
    calls = module.program.calls_of(module, called) if Binds.PARAMETER in ways else ()
    return any(call.may_have_more for _, call in calls)


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
