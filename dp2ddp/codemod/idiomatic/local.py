"""Numbers that each rank has of its own, training losses and hits, and what is decided by them.

Followed by names from the batches of a training loop, through calls and results. What a loop of all ranks decides by
such a number (another learning rate, an early end) would part the ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.aliases import handed_over
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import CallSite, Script, Variable
from dp2ddp.codemod.idiomatic.bars import bar_over, shown_on_bars
from dp2ddp.codemod.idiomatic.loading import read_loaders
from dp2ddp.codemod.idiomatic.once import read_once
from dp2ddp.codemod.idiomatic.remembered import once_a_project

ALIKE = {"size", "dim", "shape", "device", "dtype", "type", "numel", "ndim"}  # of a tensor: not its numbers
ALIKE_FUNCTIONS = {"builtins.len", "builtins.isinstance", "builtins.type", "builtins.hasattr", "builtins.id"}
FILLS = ("append", "update", "add", "extend", "add_")
SHARES = {
    "backward",
    "step",
    "train",
    "eval",
    "zero_grad",
    "set_epoch",
    "load_state_dict",
    "unscale_",
    "update",
}


@once_a_project
def local_variables(facts: Facts) -> frozenset[Variable]:
    """Every variable that may hold a number of one rank's own."""
    program = facts.program
    loops = [loop for loading in read_loaders(facts) for loop in loading.trains]
    variables = {
        program.variable(name)
        for loop in loops
        for name in ast.walk(_batch_of(program, loop))
        if isinstance(name, (ast.Name, ast.Attribute))
    }
    while more := {variable for variable in _given(facts, program, variables) if variable not in variables}:
        variables |= more
    return frozenset(variables)


def _batch_of(program: Script, loop: ast.For) -> ast.expr:
    """The part of a loop's target that is the batch: not the number of enumerate()."""
    bar = bar_over(program, loop)
    sources = [loop.iter, *([bar.call] if bar else [])]
    is_counted = any(
        isinstance(node, ast.Name) and node.id == "enumerate"
        for source in sources
        for node in ast.walk(source)
    )
    if is_counted and isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2:
        return loop.target.elts[1]
    return loop.target


def _given(facts: Facts, program: Script, held: set[Variable]) -> Iterator[Variable]:
    for node in program.nodes(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.withitem):
        value = getattr(node, "value", None)
        if value is not None and is_local(facts, program, value, held):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
            kept = (
                name for target in targets for name in _names(target) if not _is_meters_own(program, name)
            )
            yield from map(program.variable, kept)
    for node in program.nodes(ast.If, ast.While):
        assert isinstance(node, (ast.If, ast.While))
        if not _is_rank_zeros(facts, node) and is_local(facts, program, node.test, held):
            yield from _set_under(program, node)
    for call in program.calls:
        for parameter, given in handed_over(program, call.node):
            if is_local(facts, program, given, held):
                yield parameter
        yield from _filled(facts, program, call, held)


def _names(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _names(element)
    elif isinstance(target, (ast.Subscript, ast.Starred)):
        yield target.value
    else:
        yield target


def _set_under(program: Script, node: ast.If | ast.While) -> Iterator[Variable]:
    """What is set or not as a rank's own number says: `wait = 0` of `if loss < best: wait = 0`."""
    for statement in [*node.body, *node.orelse]:
        for inner in ast.walk(statement):
            if isinstance(inner, (ast.Name, ast.Attribute)) and isinstance(inner.ctx, ast.Store):
                yield program.variable(inner)


def _is_meters_own(program: Script, target: ast.expr) -> bool:
    """`self.sum` in `Meter.update`: the meter that is updated is followed, and no other of its class."""
    function = program.scopes.function(target)
    is_self = (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    )
    return is_self and getattr(function, "name", "") in FILLS


def _filled(facts: Facts, program: Script, call: CallSite, held: set[Variable]) -> Iterator[Variable]:
    """`losses.append(loss.item())`, `meter.update(loss.item(), n)`: what it is put into."""
    function = call.node.func
    if not isinstance(function, ast.Attribute) or call.method not in FILLS or call.name is not None:
        return
    if any(is_local(facts, program, argument, held) for argument in call.node.args):
        yield from (program.variable(name) for name in _names(function.value))


def is_local(facts: Facts, program: Script, node: ast.AST, held: set[Variable] | frozenset[Variable]) -> bool:
    """Whether a number of one rank's own is in what an expression gives."""
    match node:
        case ast.Name() | ast.Attribute() if program.variable(node) in held:
            return True
        case ast.Attribute(attr=attr) if attr in ALIKE:
            return False
        case ast.Attribute(value=value):
            return is_local(facts, program, value, held)
        case ast.Call(func=func):
            return _is_local_call(facts, program, node, func, held)
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return False
        case ast.Lambda():
            return False
    return any(is_local(facts, program, inner, held) for inner in ast.iter_child_nodes(node))


def _is_local_call(
    facts: Facts, program: Script, call: ast.Call, func: ast.expr, held: set[Variable] | frozenset[Variable]
) -> bool:
    if program.scopes.name(func) in ALIKE_FUNCTIONS or isinstance(func, ast.Attribute) and func.attr in ALIKE:
        return False
    own = _results_of(facts).get(func)
    if own is not None:
        return any(program.variable(name) in held for name in own)
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(func, ast.Attribute):
        given.append(func.value)
    return any(is_local(facts, program, value, held) for value in given)


@once_a_project
def _results_of(facts: Facts) -> dict[ast.expr, list[ast.expr]]:
    """By the function expression of each call that runs functions of the project: the names in what these return."""
    results: dict[ast.expr, list[ast.expr]] = {}
    for call in facts.program.calls:
        home = facts.modules.home[call.node]
        functions = [
            function
            for _, function in facts.modules.graph.means(home, call.node.func)
            if isinstance(function, Function)
        ]
        if functions:
            results[call.node.func] = [name for function in functions for name in _returned(function)]
    return results


def _returned(function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from (each for each in ast.walk(node.value) if isinstance(each, (ast.Name, ast.Attribute)))


def local_decisions(facts: Facts) -> Iterator[ast.AST]:
    """Where all ranks would have to decide alike, and decide by a number of their own."""
    program, held = facts.program, local_variables(facts)
    for node in program.nodes(ast.If, ast.While):
        assert isinstance(node, (ast.If, ast.While))
        if _is_rank_zeros(facts, node) or not is_local(facts, program, node.test, held):
            continue
        if isinstance(node, ast.While) or any(map(_matters, [*node.body, *node.orelse])):
            yield node.test
    for call in program.calls:
        if call.method != "step" or _is_scaler(program, call.node):
            continue
        given = [
            value for value in _values(call.node) if program.scopes.definition(value) is None
        ]  # no closure
        if any(is_local(facts, program, value, held) for value in given if not isinstance(value, ast.Lambda)):
            yield call.node


def _is_scaler(program: Script, call: ast.Call) -> bool:
    """`scaler.step(optimizer)`."""
    text = program.text_of(call.func)
    return "scaler" in text.lower()


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_rank_zeros(facts: Facts, node: ast.AST) -> bool:
    home = facts.modules.home.get(node)
    file = next((file for file in facts.files if file.script is home), None)
    return file is not None and read_once(file).holds(node)


def _matters(statement: ast.stmt) -> bool:
    """Whether what stands under a rank's own decision is more than output and notes."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Delete, ast.Global)):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SHARES:
            return True
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            return True
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("exit", "quit")
        ):
            return True
    return False


def shows_local(facts: Facts) -> ast.stmt | None:
    """A statement of rank 0 alone that shows or writes a number of its own; on other ranks, bars show nothing."""
    program, held = facts.program, local_variables(facts)
    alone = (statement for file in facts.files for run in read_once(file).runs for statement in run.nodes)
    shown = chain(alone, shown_on_bars(program))
    return next((statement for statement in shown if is_local(facts, program, statement, held)), None)
