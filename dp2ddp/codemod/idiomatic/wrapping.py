"""The wrap in the idiomatic style: under which condition it stands, and whether the model has been moved before."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.entry import is_main_guard
from dp2ddp.codemod.facts.iterations import Condition, conditions, iteration_of
from dp2ddp.codemod.facts.models import Wrap, WrapKind
from dp2ddp.codemod.facts.script import Script

AVAILABLE = "torch.cuda.is_available"
COUNT = "torch.cuda.device_count"
MOVES = ("cuda", "to")


@dataclass(frozen=True, eq=False)
class Move:
    """What brings a model to its device: `.cuda()`, `.to(device)`; `chain` is the call, where it is put on the wrap."""

    text: str  # "" where the model is there already
    chain: ast.Call | None = None


def plain_wraps(facts: Facts) -> tuple[Wrap, ...]:
    """The wraps of a file that a tutorial's line can take the place of."""
    return tuple(
        wrap for wrap in facts.wraps if wrap.kind is WrapKind.WRAP and wrap.is_readable and not wrap.is_single
    )


@dataclass(frozen=True, eq=False)
class Odd:
    """A condition around a wrap that asks neither for CUDA nor for the number of GPUs."""

    test: ast.expr
    statement: ast.If
    in_body: bool


def odd_conditions(facts: Facts, script: Script, wrap: Wrap) -> list[Odd] | None:
    """The conditions that keep a model from being wrapped; None where they cannot be told."""
    around = _conditions_of(script, wrap)
    if around is None:
        return None
    return [
        Odd(condition.test, condition, in_body)
        for condition, in_body in around
        if not _asks_devices(facts, script, condition.test)
        and not _is_settled(facts, script, condition, in_body)
    ]


def _is_settled(facts: Facts, script: Script, statement: ast.If, in_body: bool) -> bool:
    """Whether the other way is no matter: the script starts there, leaves behind the wrap, or wraps there as well."""
    if is_main_guard(statement):
        return True
    here, there = (statement.body, statement.orelse) if in_body else (statement.orelse, statement.body)
    if isinstance(here[-1], (ast.Return, ast.Raise)) or _leaves(script, here[-1]):
        return True
    wraps = {wrap.call.node for wrap in facts.all_wraps}
    return any(node in wraps for statement in there for node in ast.walk(statement))


def _leaves(script: Script, statement: ast.stmt) -> bool:
    called = (
        statement.value.func
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        else None
    )
    return script.scopes.name(called) in ("sys.exit", "builtins.exit", "builtins.quit")


def needs_cuda(facts: Facts) -> bool:
    """Whether ranks without a GPU would not be wrapped, or fail: then the join must fail without one, too."""
    for file in facts.modules.scripts:
        if any(call.method == "cuda" and not _is_conditional(file, call.node) for call in file.calls):
            return True
    if not any(call.name == AVAILABLE for file in facts.modules.scripts for call in file.calls):
        return True
    return any(
        _is_conditional(facts.modules.home[wrap.call.node], wrap.call.node) for wrap in facts.all_wraps
    )


def _is_conditional(script: Script, node: ast.AST) -> bool:
    around = conditions(script, node, iteration_of(script, node))
    return around is None or bool(around)


def _conditions_of(script: Script, wrap: Wrap) -> list[Condition] | None:
    node = wrap.call.node
    return conditions(script, node, iteration_of(script, node))


def _asks_devices(facts: Facts, script: Script, test: ast.expr) -> bool:
    """Whether a condition is about CUDA being there, or there being several GPUs, and nothing else."""
    match test:
        case ast.BoolOp(values=values):
            return all(_asks_devices(facts, script, value) for value in values)
        case ast.Compare(left=left, comparators=[right]):
            return any(_is_of_devices(script, side) for side in (left, right)) and any(
                isinstance(side, ast.Constant) for side in (left, right)
            )
        case _:
            return _is_of_devices(script, test)


def _is_of_devices(script: Script, node: ast.expr) -> bool:
    """Made of questions to torch.cuda, and of nothing else: `torch.cuda.is_available()`, `use_cuda`, `device.type`.

    Not `args.cuda`, where it is `not args.no_cuda and torch.cuda.is_available()`.
    """
    values = _values_of(script, node)
    return bool(values) and all(_asks_torch(script, value) for value in values)


def _asks_torch(script: Script, value: ast.AST) -> bool:
    names = {script.scopes.name(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    others = (node for node in ast.walk(value) if isinstance(node, ast.Name))
    is_plain = all((script.scopes.name(name) or "").startswith(("torch", "builtins.")) for name in others)
    return is_plain and bool(names & {AVAILABLE, COUNT})


def _values_of(script: Script, node: ast.expr) -> list[ast.AST]:
    """What an expression is, or is given: also `args.device`, and `device` of `device.type`."""
    if isinstance(node, ast.Call):
        return [node]
    text = script.text_of(node)
    given = [
        node.value
        for node in script.nodes(ast.Assign)
        if isinstance(node, ast.Assign) and any(script.text_of(target) == text for target in node.targets)
    ]
    if not given and isinstance(node, ast.Attribute) and node.attr == "type":
        return _values_of(script, node.value)
    if not given and isinstance(node, ast.UnaryOp):
        return _values_of(script, node.operand)
    return list(given)


def move_of(script: Script, wrap: Wrap) -> Move:
    """How the model comes to the rank's device before it is wrapped, which DistributedDataParallel asks for."""
    chain = _chain(script, wrap.call.node)
    if wrap.module is None:
        return Move("", chain)
    if _is_moved(script, wrap):
        return Move("", chain)
    if chain is not None:
        return Move(_move_text(script, chain), chain)
    later = next((call for call in _moves(script, wrap) if _is_behind(script, call, wrap)), None)
    return Move(_move_text(script, later) if later is not None else ".cuda()")


def _chain(script: Script, call: ast.Call) -> ast.Call | None:
    """`.cuda()` of `DataParallel(net).cuda()`."""
    attribute = script.scopes.parents[call]
    if not isinstance(attribute, ast.Attribute) or attribute.attr not in MOVES:
        return None
    outer = script.scopes.parents[attribute]
    return outer if isinstance(outer, ast.Call) and outer.func is attribute else None


def _move_text(script: Script, move: ast.Call) -> str:
    """`.to(device)` where the device has a name; else the rank's own."""
    match move.func, move.args:
        case ast.Attribute(attr="to"), [ast.Name() | ast.Attribute() as device]:
            return f".to({script.text(device)})"
    return ".cuda()"


def _is_moved(script: Script, wrap: Wrap) -> bool:
    """Whether the model is made, or moved, on its device before the wrap."""
    assert wrap.module is not None
    made = script.scopes.value(wrap.module)
    if made is not None and _ends_in_move(made) and wrap.call.node not in ast.walk(made):
        return True
    text = script.text_of(wrap.module)
    for node in script.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        is_same = any(script.text_of(target) == text for target in node.targets)
        is_wrap = wrap.call.node in ast.walk(node.value)
        if is_same and not is_wrap and _ends_in_move(node.value) and not _is_behind(script, node, wrap):
            return True
    return any(not _is_behind(script, call, wrap) for call in _moves(script, wrap))


def _ends_in_move(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES


def _moves(script: Script, wrap: Wrap) -> list[ast.Call]:
    """Calls of `.cuda()` and `.to()` on the model, in the order of the text."""
    assert wrap.module is not None
    texts = {script.text_of(wrap.module), *wrap.names}
    return [
        call.node
        for call in script.calls
        if call.method in MOVES
        and isinstance(call.node.func, ast.Attribute)
        and script.text_of(call.node.func.value) in texts
        and script.scopes.function(call.node) is script.scopes.function(wrap.call.node)
    ]


def _is_behind(script: Script, node: ast.AST, wrap: Wrap) -> bool:
    return script.positions.span(node).start > script.positions.span(wrap.call.node).start


def may_leave_out(facts: Facts, wrap: Wrap) -> bool:
    """Whether a forward may use some parameters only: a layer that no method mentions, or one in a branch."""
    script = facts.modules.home[wrap.call.node]
    made = script.scopes.value(wrap.module) if wrap.module is not None else None
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in MOVES:
        made = script.scopes.value(made.func.value)
    definition = facts.modules.definition(script, made.func) if isinstance(made, ast.Call) else None
    if definition is None or not isinstance(definition[1], ast.ClassDef):
        return False
    return _has_idle_layer(definition[1])


def _has_idle_layer(owner: ast.ClassDef) -> bool:
    """A part that is made in __init__ and named nowhere else, or only under a condition of forward."""
    methods = {
        statement.name: statement for statement in owner.body if isinstance(statement, ast.FunctionDef)
    }
    init, forward = methods.get("__init__"), methods.get("forward")
    if init is None or forward is None:
        return False
    made = {
        target.attr
        for node in ast.walk(init)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    named = {
        node.attr
        for method in methods.values()
        if method is not init
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
    }
    by_name = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
        for node in ast.walk(owner)
    )
    again = {
        node.attr
        for statement in init.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    return not by_name and bool(made - named - again)
