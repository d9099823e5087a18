"""Loaders in the idiomatic style: which train and which evaluate, their batch sizes, and where epochs begin."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.aliases import followed_names, handed_over
from dp2ddp.codemod.facts.iterations import Region
from dp2ddp.codemod.facts.loaders import calls_of_loaders
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import CallSite, Script, Variable, literal
from dp2ddp.codemod.idiomatic.bars import bar_over, read_bar, wraps_loops
from dp2ddp.codemod.idiomatic.remembered import once_a_project

KNOWN = {  # what may stand in a training loader's call
    *("dataset", "batch_size", "shuffle", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout"),
    *(
        "worker_init_fn",
        "prefetch_factor",
        "persistent_workers",
        "pin_memory_device",
        "multiprocessing_context",
    ),
}
QUIET = {"dataset", "batch_size", "num_workers", "sampler", "drop_last"}  # what may be read of a loader
ITERABLE = "torch.utils.data.IterableDataset"


@dataclass(frozen=True, eq=False)
class Loading:
    """One loader, and what is done with it."""

    call: CallSite
    script: Script  # the file that makes it
    names: frozenset[Variable]
    trains: tuple[ast.For, ...]  # loops over it that train
    others: tuple[ast.AST, ...]  # loops over it that do not
    odd: tuple[ast.AST, ...]  # uses that are neither loops nor known questions

    @property
    def dataset(self) -> ast.expr | None:
        return self.call.argument(0, "dataset")

    @property
    def batch_size(self) -> ast.expr | None:
        return self.call.argument(1, "batch_size")

    @property
    def shuffle(self) -> ast.expr | None:
        return self.call.argument(2, "shuffle")

    @property
    def drop_last(self) -> ast.expr | None:
        return self.call.argument(None, "drop_last")

    @property
    def shuffles(self) -> bool:
        """Whether its order is random, or may be."""
        return self.shuffle is not None and literal(self.shuffle) is not False


@dataclass(frozen=True, eq=False)
class Epoch:
    """Where each epoch begins, and how the loader and the number of the epoch are called there."""

    before: ast.stmt  # the statement that set_epoch comes before
    loader: str
    number: str


@once_a_project
def read_loaders(facts: Facts) -> tuple[Loading, ...]:
    """All loaders of the project that can be reached (also when it is asked of a local module's facts)."""
    program = facts.program
    loaders: list[Loading] = []
    for script in facts.modules.scripts:
        for call in calls_of_loaders(script, facts.modules):
            if (
                facts.reach.holds(script, call.node)
                and facts.places.of(call.node) is not ExecutionPlace.THREAD
            ):
                loaders.append(_read(facts, program, script, call))
    return tuple(loaders)


def _read(facts: Facts, program: Script, script: Script, call: CallSite) -> Loading:
    names = followed_names(program, {call.node}, _targets(program, call.node))
    trains: list[ast.For] = []
    others: list[ast.AST] = []
    odd: list[ast.AST] = []
    for source, use in _uses(program, call.node, names):
        loops = _loops_over(program, source)
        if not loops and not _is_quiet(program, use):
            odd.append(use)
        for loop in loops:
            if isinstance(loop, ast.For) and _trains(facts, program, loop):
                trains.append(loop)
            else:
                others.append(loop)
    return Loading(call, script, names, tuple(trains), tuple(others), tuple(odd))


def _targets(program: Script, call: ast.Call) -> set[Variable]:
    statement = program.scopes.statement(call)
    if isinstance(statement, ast.Assign) and statement.value is call:
        return {program.variable(target) for target in statement.targets}
    return set()


def _uses(program: Script, call: ast.Call, names: frozenset[Variable]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Mentions of a loader, and the call itself where it is used at once."""
    yield call, call
    for node in program.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if isinstance(node.ctx, ast.Load) and program.variable(node) in names:
            yield node, node


def _loops_over(program: Script, node: ast.AST) -> tuple[ast.AST, ...]:
    """The loops that go through a loader: also by enumerate() or a progress bar, which may have a name."""
    parent = program.scopes.parents[node]
    while isinstance(parent, ast.Call) and node in parent.args and wraps_loops(program, parent):
        node, parent = parent, program.scopes.parents[parent]
    if isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node:
        return (parent,)
    bar = read_bar(program, node)
    return bar.loops if bar else ()


def _is_quiet(program: Script, node: ast.AST) -> bool:
    """`len(loader)`, `loader.dataset`, what hands it on, and what gives it a name."""
    parent = program.scopes.parents[node]
    match parent:
        case ast.Call(func=func):
            if program.scopes.name(func) == "builtins.len":
                return True
            return any(given is node for _, given in handed_over(program, parent))
        case ast.keyword():
            call = program.scopes.parents[parent]
            return isinstance(call, ast.Call) and any(
                given is node for _, given in handed_over(program, call)
            )
        case ast.Attribute(attr=attr):
            return attr in QUIET
        case ast.Assign(value=value):
            return value is node
        case ast.Return():
            return True
        case ast.Tuple():
            return isinstance(program.scopes.parents[parent], (ast.Assign, ast.Return))
        case ast.Expr() | ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return True
    return False


def _trains(facts: Facts, program: Script, loop: ast.For) -> bool:
    region = Region(program, loop)
    return any(region.holds(backward) for backward in facts.training.backwards)


def epoch_of(facts: Facts, loading: Loading, loop: ast.For) -> Epoch | None:
    """Where to tell the sampler its epoch: at the head of the loop over epochs, or before the loop over batches."""
    program = facts.program
    outer = _outer_loop(program, loop)
    if outer is not None:
        return _epoch_in(program, loading, outer, loop)
    function = program.scopes.function(loop)
    if not isinstance(function, Function):
        return None
    calls = [call for _, call in facts.modules.graph.calls((facts.modules.home[function], function))]
    around = {outer for call in calls if (outer := _outer_loop(program, call)) is not None}
    if len(calls) != 1 or len(around) != 1:
        return None
    (epochs,) = around
    if place := _epoch_in(program, loading, epochs, calls[0]):
        return place
    number = next(
        (name for (_, name), given in handed_over(program, calls[0]) if _is_number(epochs, given)), None
    )
    bar = bar_over(program, loop)  # around enumerate(loader), it begins to load
    before = bar.made if bar else loop
    name = _name_at(program, loading, before)
    return Epoch(before, name, number) if number and name else None


def is_single_pass(facts: Facts, loop: ast.For) -> bool:
    """Whether a loop over batches runs once: no loop is around it, nor around the calls of its function."""
    pending: list[ast.AST] = [loop]
    seen: set[ast.AST] = set()
    while pending:
        node = pending.pop()
        if any(isinstance(parent, (ast.For, ast.While)) for parent in facts.program.scopes.ancestors(node)):
            return False
        function = facts.program.scopes.function(node)
        if isinstance(function, Function) and function not in seen:
            seen.add(function)
            calls = [call for _, call in facts.modules.graph.calls((facts.modules.home[function], function))]
            if len(calls) != 1:
                return False
            pending += calls
    return True


def _is_number(epochs: ast.For, given: ast.expr) -> bool:
    return (
        isinstance(given, ast.Name) and isinstance(epochs.target, ast.Name) and given.id == epochs.target.id
    )


def _outer_loop(program: Script, node: ast.AST) -> ast.For | None:
    for parent in program.scopes.ancestors(node):
        if isinstance(parent, ast.For):
            return parent
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.While)):
            return None
    return None


def _epoch_in(program: Script, loading: Loading, epochs: ast.For, inside: ast.AST) -> Epoch | None:
    if not isinstance(epochs.target, ast.Name):
        return None
    name = _name_at(program, loading, epochs.body[0])
    return Epoch(epochs.body[0], name, epochs.target.id) if name else None


def _name_at(program: Script, loading: Loading, place: ast.stmt) -> str | None:
    """How a loader is called at a place: a variable that is seen there, or an attribute of the same object."""
    scope = program.scopes.scope_of[place]
    for owner, name in sorted(loading.names, key=lambda item: item[1]):
        if owner is None and name.startswith("."):
            if program.scopes.owner_class(place) is not None and _is_own_attribute(program, place, name[1:]):
                return f"self{name}"
            continue
        binding = program.scopes.lookup(name, scope)
        if binding is not None and binding.node is owner:
            return name
        if binding is not None and owner is None and isinstance(binding.node, ast.Module):
            return name
    return None


def _is_own_attribute(program: Script, place: ast.stmt, name: str) -> bool:
    owner = program.scopes.owner_class(place)
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        for node in (ast.walk(owner) if owner else ())
    )


def is_complete(loading: Loading) -> bool:
    """Whether the call of a training loader can be read as a whole."""
    node = loading.call.node
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args) and len(node.args) <= 3
    return plain and all(keyword.arg in KNOWN for keyword in node.keywords)


def unknown_argument(loading: Loading) -> str:
    given = (keyword.arg or "**" for keyword in loading.call.node.keywords if keyword.arg not in KNOWN)
    return next(given, "*")


def in_training(facts: Facts, node: ast.AST) -> bool:
    """Whether something runs in a loop that trains, on the batch of a rank."""
    loops = (loop for loading in read_loaders(facts) for loop in loading.trains)
    return any(Region(facts.program, loop).holds(node) for loop in loops)
