"""Local looks that several rules take: calls, words, what trains, what a thing is called."""

import ast
from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from itertools import groupby

from dp2ddp.codemod.model.flow import pairs
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS, last_name
from dp2ddp.codemod.model.program import Program

NEUTRAL = ("torch.", "builtins.")


def calls_in(program: Program) -> Iterator[tuple[Module, Call]]:
    """Every call, with its file."""
    return ((module, call) for module in program.modules for call in module.calls)


def words_in(*nodes: ast.AST) -> set[str]:
    """All names and attributes in an expression."""
    return {word for node in nodes for each in ast.walk(node) if (word := last_name(each))}


def is_true(node: ast.expr | None) -> bool:
    """Whether an argument may be true: it is given, and is no constant like False or None."""
    return node is not None and not (isinstance(node, ast.Constant) and not node.value)


@lru_cache(maxsize=10000)
def inside(module: Module, node: ast.AST) -> tuple[Call, ...]:
    """The calls in a statement."""
    nodes = set(ast.walk(node))
    return tuple(call for call in module.calls if call.node in nodes)


def runs_of(module: Module, statements: Container[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Some statements of a file: those that follow each other in a block together."""
    for node in ast.walk(module.tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for is_one, run in groupby(block if isinstance(block, list) else (), statements.__contains__):
                if is_one:
                    yield list(run)


# --- what trains


def leading_to(program: Program, is_one: Callable[[Module, Call], bool]) -> frozenset[str]:
    """The names of functions with a call of some kind, and of those that call these."""
    names: frozenset[str] = frozenset()
    while True:
        more = {
            function.name
            for module, call in calls_in(program)
            if is_one(module, call) or calls_one(module, call, names)
            for function in module.around(call.node)
            if isinstance(function, NAMED_FUNCTIONS)
        }
        if more <= names:
            return names
        names |= more


def calls_one(module: Module, call: Call, names: Container[str]) -> bool:
    """Whether a call is of one of these functions, by its name alone; an object is called by its `__call__`."""
    word = last_name(call.node.func)
    is_object = call.name is None and word not in module.program.methods
    return (word in names or is_object and "__call__" in names) and not (call.name or "").startswith(NEUTRAL)


@lru_cache(maxsize=8)
def _training(program: Program) -> frozenset[str]:
    return leading_to(program, lambda module, call: call.method == "backward")


@lru_cache(maxsize=10000)
def trains(module: Module, node: ast.AST) -> bool:
    """Whether a backward pass runs in a loop or a function, or in what it calls."""
    names = _training(module.program)
    return any(call.method == "backward" or calls_one(module, call, names) for call in inside(module, node))


# --- which thing an expression is, by what it is called


def word_of(node: ast.AST) -> str:
    """What a thing is called: `train` of `loaders["train"]`, `get_loader` of `get_loader(args)`."""
    match node:
        case ast.Call(func=called):
            return last_name(called)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case ast.Subscript(value=value):
            return word_of(value)
    return last_name(node)


def names_given(module: Module, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> set[str]:
    """What the program calls the value that is made here: variables, keys, functions that return it."""
    parent, statement = module.parents[node], module.statement(node)
    names = set()
    if isinstance(parent, ast.Dict) and isinstance(
        key := parent.keys[parent.values.index(node)], ast.Constant
    ):
        names.add(str(key.value))
    function = module.function_around(node) if isinstance(statement, ast.Return) else None
    if isinstance(function, ast.FunctionDef) and function not in seen:
        names.add(function.name)
        for home, call in module.program.calls_of(module, function):
            names |= names_given(home, call.node, seen | {function})
    for target, value in pairs(statement) if isinstance(statement, ast.Assign) else ():
        if node in set(ast.walk(value)):
            names.add(word_of(target))
    return names - {""}


def is_called(module: Module, node: ast.expr, made: Container[ast.AST], names: Container[str]) -> bool:
    """Whether an expression may be a thing that is made or named so, by where its value comes from."""
    origins = [node, *(origin for _, origin in module.program.flow.origins(module, node))]
    return any(each in made or word_of(each) in names for each in origins)
