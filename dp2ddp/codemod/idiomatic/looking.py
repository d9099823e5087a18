"""Local looks that several rules take: what stands in what, what trains, what a made thing is called."""

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby

from dp2ddp.codemod.model.flow import pairs
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import all_from, inside, last_name
from dp2ddp.codemod.model.program import Program

Place = tuple[Module, Call]


def words_in(*nodes: ast.AST) -> set[str]:
    """All names and attributes in an expression."""
    return {word for node in nodes for each in ast.walk(node) if (word := last_name(each))}


def runs_of(module: Module, statements: Container[ast.AST]) -> Iterator[list[ast.stmt]]:
    """Some statements of a file: those that follow each other in a block together."""
    for node in ast.walk(module.tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for is_one, run in groupby(block if isinstance(block, list) else (), statements.__contains__):
                if is_one:
                    yield list(run)


# --- what trains


def leading_to(calls: Iterable[Place]) -> frozenset[ast.AST]:
    """Some calls, and those of the functions that they stand in, and so on; not those that make an object."""
    return frozenset(call.node for _, call in all_from(calls, _calls_of_its_function))


def _calls_of_its_function(place: Place) -> Iterator[Place]:
    """The calls of the function that a call stands in; of a method, whichever class has it."""
    module, call = place
    function, program = module.enclosing(call.node, ast.FunctionDef), module.program
    if function is None or function.name == "__init__":
        return
    if function.name == "__call__":  # of any object: nobody says whose
        objects = (each for each in program.calls if each[1].name is None)
        yield from (each for each in objects if last_name(each[1].node.func) not in program.methods)
    is_method = isinstance(module.parents[function], ast.ClassDef)
    for home, each in program.methods_named[function.name] if is_method else [(module, function)]:
        yield from program.calls_of(home, each)


@lru_cache(maxsize=8)
def _leading_to_backward(program: Program) -> frozenset[ast.AST]:
    return leading_to(each for each in program.calls if each[1].method == "backward")


def trains(module: Module, node: ast.AST) -> bool:
    """Whether a backward pass runs in a loop or a function, or in what it calls."""
    return not _leading_to_backward(module.program).isdisjoint(inside(node, ast.Call))


# --- which thing an expression is, by what it is called


@dataclass(frozen=True, eq=False)
class Made:
    """A call that makes a thing, and what the program calls that."""

    module: Module
    call: Call

    @cached_property
    def names(self) -> set[str]:
        """Variables, keys, functions that return it."""
        return _names_given(self.module, self.call.node) - {""}

    def is_meant(self, module: Module, node: ast.expr) -> bool:
        """Whether an expression may be this thing, by where its value comes from."""
        origins = [node, *(origin for _, origin in module.program.flow.origins(module, node))]
        return any(each is self.call.node or _word_of(each) in self.names for each in origins)


def _word_of(node: ast.AST) -> str:
    """What a thing is called: `train` of `loaders["train"]`, `get_loader` of `get_loader(args)`."""
    match node:
        case ast.Call(func=called):
            return last_name(called)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case ast.Subscript(value=value):
            return _word_of(value)
    return last_name(node)


def _names_given(module: Module, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> set[str]:
    parent, statement, names = module.parents[node], module.statement(node), set()
    if isinstance(parent, ast.Dict) and node in parent.values:
        names.add(str(getattr(parent.keys[parent.values.index(node)], "value", "")))
    function = module.function_around(node) if isinstance(statement, ast.Return) else None
    if isinstance(function, ast.FunctionDef) and function not in seen:
        names.add(function.name)
        for home, call in module.program.calls_of(module, function):
            names |= _names_given(home, call.node, seen | {function})
    for target, value in pairs(statement) if isinstance(statement, ast.Assign) else ():
        if node in set(ast.walk(value)):
            names.add(_word_of(target))
    return names
