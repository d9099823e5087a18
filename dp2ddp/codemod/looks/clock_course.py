"""Where a number goes that differs from rank to rank (a time, a process id): into lines that are shown, or further.

It is followed through arithmetic and texts, the names, attributes and containers that it is kept in, into functions of
the program and out of them. What only computes and shows gives back what it is given: a function (`format_time(spent)`)
does so at once, an object (`batch_time.update(time() - end)`) wherever somebody looks at it. What is not known decides.
"""

import ast
from collections.abc import Iterable

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.shown import (
    ASKS,
    COMPUTES,
    GIVES_BACK,
    HOLDERS,
    LOGGERS,
    SHOWING,
    SHOWS,
    UNSEEN,
)
from dp2ddp.codemod.looks.uses import Answer, comes_only_to, loads, set_to
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import COMPREHENSIONS, LOOPS, inside
from dp2ddp.codemod.model.scopes import Binds, settings
from dp2ddp.source.parsing import nodes_in

THROUGH = (
    *(ast.keyword, ast.Starred, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr),
    *(ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Attribute, ast.Subscript),
    *COMPREHENSIONS,
)
OUT = (ast.Raise, ast.Assert, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom)
LEAVES = (
    *OUT,
    *LOOPS,
    *COMPREHENSIONS,
    ast.Return,
    ast.Break,
    ast.Continue,
    ast.Delete,
)  # does more than to pick words


def decides(module: Module, node: ast.AST) -> bool:
    """Whether it comes to anything but lines that are shown."""
    return not comes_only_to(module, node, _is_shown)


def _is_shown(module: Module, parent: ast.AST, child: ast.AST) -> Answer:
    if targets := [*set_to(module, child)]:
        return _kept(module, targets)
    match parent:
        case ast.Expr() | ast.Delete() | ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return True
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            return value is not child or _kept(module, [target for target, _ in settings(parent)])
        case ast.comprehension(target=target, iter=given):
            is_plain = given is child and _is_plain(module, module.parents[parent])
            return is_plain and _kept(module, [target])
        case ast.Return():
            return _returned(module, parent)
        case ast.If() | ast.For():
            return _picks(module, parent)
        case ast.Call(func=func) if func is child:
            return _called(module, parent)
        case ast.Call():
            return _given(module, module.call(parent), child)
        case ast.Subscript(slice=index) if index is child:
            return False
        case ast.Dict(keys=keys) if child in keys:
            return False
        case ast.BoolOp() | ast.IfExp() if not _is_plain(module, parent):
            return False
    return None if isinstance(parent, THROUGH) else False


def _picks(module: Module, statement: ast.If | ast.For) -> Answer:
    """Where a condition, or a number of rounds, only picks what is said (`if hours > 0: text += "h"`)."""
    branches = (*statement.body, *statement.orelse)
    if any(any(inside(each, *LEAVES)) or not _is_plain(module, each) for each in branches):
        return False
    lists = [call.node.func.value for call in module.calls_in(statement) if _builds(module, call)]  # type: ignore[attr-defined]  # a method
    return _kept(module, [*(target for each in nodes_in(statement) for target, _ in settings(each)), *lists])


def _is_plain(module: Module, code: ast.AST) -> bool:
    """Whether code does nothing but compute and show, but for what it sets."""
    return all(_only_shows(module, call) for call in module.calls_in(code))


# --- names, attributes and containers


def _kept(module: Module, targets: list[ast.expr]) -> Answer:
    """The uses of what it is kept in; False where somebody may have it by another way."""
    if not all(_is_followed(module, each) for each in targets):
        return False
    return [use for each in targets for use in loads(module, _without_index(each))]


def _is_followed(module: Module, target: ast.expr) -> bool:
    if isinstance(target, (ast.Subscript, ast.Attribute)):
        return _is_holder(module, target.value)
    return isinstance(target, ast.Name) and not _asks_for_all_names(module, target)


def _without_index(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _is_holder(module: Module, owner: ast.expr) -> bool:
    """Whether an object only keeps what it is given: a display, a bar, an object of a class of the program."""
    if isinstance(owner, ast.Subscript):
        return _is_holder(module, owner.value)
    made = module.program.bindings(module, owner)
    is_made_here = made and all(
        each.how is Binds.VALUE and _makes_holder(home, each.node) for home, each in made
    )
    return bool(is_made_here) or ast.unparse(owner) in ("self", "cls")


def _makes_holder(module: Module, node: ast.AST | None) -> bool:
    name = (module.name(node.func) if isinstance(node, ast.Call) else None) or ""
    is_display = isinstance(node, (ast.List, ast.Dict, ast.Set, *COMPREHENSIONS))
    return is_display or module.program.is_local(name) or name.startswith(HOLDERS)


def _asks_for_all_names(module: Module, name: ast.AST) -> bool:
    """`"{loss} {t}".format(**locals())`."""
    uses = (each for word in ("locals", "vars", "globals") for each in module.by_word.get(word, ()))
    return any(module.function_around(each) is module.function_around(name) for each in uses)


# --- functions and objects


def _called(module: Module, call: ast.Call) -> Answer:
    """A method of what has it: `meter.summary()` gives it back, `(loss * time()).backward()` does more."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if methods := module.program.methods_named.get(call.func.attr, ()):
        return None if _are_quiet(methods) else False
    return None if call.func.attr in GIVES_BACK or _is_holder(module, call.func.value) else False


def _given(module: Module, call: Call, given: ast.AST) -> Answer:
    """What a function does with it: shows it, gives something of it back, keeps it."""
    if _shows(module, call) or call.name in ASKS:
        return True
    if does(call.name) not in (None, Does.CLOCK, Does.CALENDAR):
        return False
    if (call.name or "").startswith(COMPUTES) or not call.name and call.method in GIVES_BACK:
        return None
    if own := module.definition(call.node.func):
        home, function = module.program.called(module, call.node.func) or own
        return None if _is_quiet(*own) else _enters(home, function, call.node, given)
    return _by_method(module, call, given) if call.method and not call.name else False


def _by_method(module: Module, call: Call, given: ast.AST) -> Answer:
    """A method: of the program, whatever has one of that name; or of a container."""
    owner: ast.expr = call.node.func.value  # type: ignore[attr-defined]  # it is a method
    methods = module.program.methods_named.get(call.method, [])
    if methods and (ast.unparse(owner) in ("self", "cls") or not _are_quiet(methods)):
        entered = [_enters(home, method, call.node, given) for home, method in methods]
        return False not in entered and [use for uses in entered if isinstance(uses, list) for use in uses]
    kept = _is_holder(module, owner) and _kept(module, [owner])
    return [*kept, (module, call.node)] if isinstance(kept, list) else False


def _enters(home: Module, function: ast.AST, call: ast.Call, given: ast.AST) -> Answer:
    """The uses of the parameter that it comes in by."""
    taken = home.parameter(function, call, given) if isinstance(function, ast.FunctionDef) else None
    names = (use for use in home.by_word.get(taken.arg, ()) if isinstance(use, ast.Name)) if taken else ()
    uses = [(home, use) for use in names if isinstance(use.ctx, ast.Load) and function in home.around(use)]
    return taken is not None and [*uses]


def _returned(module: Module, statement: ast.stmt) -> Answer:
    """The calls of the function that it is returned from; of a method of any object, or read as a property."""
    function = module.function_around(statement)
    if not isinstance(function, ast.FunctionDef) or function.name in UNSEEN:
        return False
    is_method = isinstance(module.parents[function], ast.ClassDef)
    said = ((home, node) for home in module.program.modules for node in home.by_word.get(function.name, ()))
    uses = ((home, node, home.parents[node]) for home, node in said if isinstance(node.ctx, ast.Load))
    return [
        (home, around if isinstance(around, ast.Call) and around.func is node else node)
        for home, node, around in uses
        if isinstance(node, ast.Attribute) or not is_method
    ]


# --- what only computes, and shows


def _are_quiet(methods: Iterable[tuple[Module, ast.FunctionDef]]) -> bool:
    return all(_is_quiet(home, home.parents[method]) for home, method in methods)


def _is_quiet(module: Module, definition: ast.AST) -> bool:
    """Whether a function, or all methods of a class, only compute and show, and set nothing but names and `self`."""
    is_class = isinstance(definition, ast.ClassDef)
    things = inside(definition, ast.Attribute, ast.Subscript)
    is_set = (each for each in things if not isinstance(each.ctx, ast.Load))  # type: ignore[attr-defined]
    if any(inside(definition, *OUT)) or not all(is_class and _is_of_self(each) for each in is_set):
        return False
    calls = (call.node.func for call in module.calls_in(definition) if not _only_shows(module, call))
    return all(is_class and _is_of_self(each) and module.definition(each) is not None for each in calls)


def _is_of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"


def _only_shows(module: Module, call: Call) -> bool:
    """Whether a call does nothing but compute and show, but for a list that a function makes for itself."""
    return _computes(call) or _shows(module, call) or _builds(module, call)


def _computes(call: Call) -> bool:
    is_known = does(call.name) in (None, Does.CLOCK, Does.CALENDAR)
    is_text = not call.name and call.method in GIVES_BACK
    return is_text or is_known and (call.name or "").startswith((*COMPUTES, *ASKS))


def _builds(module: Module, call: Call) -> bool:
    """`words.append(x)`, of a list that a function makes for itself."""
    match call.node.func:
        case ast.Attribute(value=ast.Name() as owner, attr="append"):
            scope, function = module.scope(owner), module.function_around(owner)
            return scope is not None and scope.node is function and _is_holder(module, owner)
    return False


def _shows(module: Module, call: Call) -> bool:
    """Whether a call does nothing but show what it is given."""
    name = call.name or ""
    is_logger = call.method in SHOWS - module.program.methods and (not name or name.startswith(LOGGERS))
    return name.startswith(SHOWING) or is_logger
