"""Whether a name of the wrapped model always means it: where rows stay apart, no other model may be given them.

Until the first wrap every rank has whole batches (templates/rows.py, RowsApart); from then on a sharded loader's
batches are rows, and only the wrapper can take them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from itertools import takewhile

from dp2ddp.codemod.facts.aliases import assignments, before_compiling, callee, handed_over
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script, Variable
from dp2ddp.codemod.facts.turns import LOOPS, exclude_each_other
from dp2ddp.codemod.facts.uses import Stopper

KEEPING = {
    "cuda",
    "to",
    "train",
    "eval",
    "float",
    "double",
    "half",
    "cpu",
}  # methods that return the model itself
AGAIN = (*LOOPS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def other_models(script: Script, wraps: tuple[Wrap, ...], names: Set[Variable]) -> Iterator[Stopper]:
    """Where a model that is not wrapped gets a name of the wrapped one, or may still have it."""
    yield from _other_bindings(script, wraps, names)
    yield from _other_arguments(script, names)
    for wrap in wraps:
        earlier = _used_before(script, wrap)
        if (earlier or _is_conditional(script, wrap)) and not runs_once(script, wrap.call.node):
            yield Stopper(
                "the model may run unwrapped when rows are apart already", earlier or wrap.call.node
            )


def _other_bindings(script: Script, wraps: tuple[Wrap, ...], names: Set[Variable]) -> Iterator[Stopper]:
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if isinstance(node.ctx, ast.Load) or script.variable(node) not in names:
            continue
        statement = script.scopes.statement(node)
        pairs = assignments(script, statement) if isinstance(statement, ast.Assign) else ()
        fits = any(target is node and _is_wrapped(script, value, wraps, names) for target, value in pairs)
        if not fits and not any(_gives_way(script, statement, wrap, script.told(node)) for wrap in wraps):
            yield Stopper(f"`{script.told(node)}` is not always the wrapped model", node)


def _is_wrapped(
    script: Script,
    value: ast.expr,
    wraps: tuple[Wrap, ...],
    names: Set[Variable],
    asked: frozenset[ast.AST] = frozenset(),
) -> bool:
    """The wrap itself, whatever stands around it but `.module`, or another name of what it made."""
    around = (one for one in ast.walk(value) if isinstance(one, ast.Attribute) and one.attr == "module")
    unwrapped = {node for one in around for node in ast.walk(one.value)}
    made = {wrap.call.node for wrap in wraps} - unwrapped
    value = before_compiling(script, value)
    if not made.isdisjoint(ast.walk(value)) or script.variable(value) in names:
        return True
    match value:
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in KEEPING:
            return script.variable(owner) in names
        case ast.Call():
            function = callee(script, value)
            if function is None or function in asked:
                return False  # what only gives what it gives itself is nothing known
            returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
            return bool(returns) and all(
                one.value is not None and _is_wrapped(script, one.value, wraps, names, asked | {function})
                for one in returns
            )
    return False


def _gives_way(script: Script, statement: ast.stmt, wrap: Wrap, name: str) -> bool:
    """`net = Net()` in front of `net = DataParallel(net)`, or in the other branch."""
    if name not in wrap.names or script.scopes.function(statement) is not script.scopes.function(
        wrap.call.node
    ):
        return False
    if statement is script.scopes.statement(wrap.call.node):
        return False
    before = script.positions.span(statement).start < script.positions.span(wrap.call.node).start
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return before or bool(calls) and exclude_each_other(script, [calls[0], wrap.call.node])


def _other_arguments(script: Script, names: Set[Variable]) -> Iterator[Stopper]:
    """A function that runs the wrapped model, and is handed another one somewhere."""
    for call in script.calls:
        for parameter, given in handed_over(script, call.node):
            function, name = parameter
            if (
                parameter in names
                and script.variable(given) not in names
                and function
                and _runs(function, name)
            ):
                yield Stopper(f"`{name}` is not always the wrapped model", given)


def _runs(function: ast.AST, parameter: str) -> bool:
    """Whether a function calls what it is given, or hands it on."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(
        isinstance(one, ast.Name) and one.id == parameter
        for call in calls
        for one in (call.func, *call.args, *(keyword.value for keyword in call.keywords))
    )


def _used_before(script: Script, wrap: Wrap) -> ast.AST | None:
    """A call of the model, or of a function that is handed it, in front of the wrap in the same function."""
    function, start = script.scopes.function(wrap.call.node), script.positions.span(wrap.call.node).start
    for call in script.calls:
        handed = [call.node.func, *(given for _, given in handed_over(script, call.node))]
        if (
            any(script.told(one) in wrap.names for one in handed)
            and script.scopes.function(call.node) is function
            and script.positions.span(call.node).start < start
        ):
            return call.node
    return None


def _is_conditional(script: Script, wrap: Wrap) -> bool:
    for parent in script.scopes.ancestors(wrap.call.node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(parent, (ast.If, ast.IfExp, ast.Try, ast.BoolOp)) and "__name__" not in script.told(
            getattr(parent, "test", parent)
        ):
            return True
    return False


def runs_once(script: Script, node: ast.AST) -> bool:
    """Whether a node runs once at most: in no loop, in a function that is called at one place, which runs once."""
    around: set[ast.AST] = set()
    while (function := _function_around(script, node)) and function not in around:
        mentions = list(_mentions(script, function))
        if _is_repeated(script, node, function) or len(mentions) > 1:
            return False
        if not mentions:
            return True
        around.add(function)
        node = mentions[0]
    return function is None and not _is_repeated(script, node, None)


def _function_around(script: Script, node: ast.AST) -> Function | None:
    return next((one for one in script.scopes.ancestors(node) if isinstance(one, Function)), None)


def _is_repeated(script: Script, node: ast.AST, function: ast.AST | None) -> bool:
    """Whether a node stands in a loop, or in something that may be called again, within a function."""
    inside = takewhile(lambda one: one is not function, script.scopes.ancestors(node))
    return any(isinstance(one, AGAIN) for one in inside)


def _mentions(script: Script, function: Function) -> Iterator[ast.AST]:
    """Where a function is named: a method by whatever has an attribute of that name."""
    is_method = isinstance(script.scopes.parents[function], ast.ClassDef)
    for node in script.nodes(ast.Name, ast.Attribute):
        if is_method and isinstance(node, ast.Attribute):
            if node.attr == function.name:
                yield node
        elif script.scopes.definition(node) is function:
            yield node
