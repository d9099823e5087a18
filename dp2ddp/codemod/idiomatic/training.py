"""Where a program trains: loops and functions with a backward pass in them, also through functions that they call."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache

from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS
from dp2ddp.codemod.model.program import Program


@lru_cache(maxsize=8)
def training_functions(program: Program) -> frozenset[str]:
    """The names of functions that lead to a backward pass."""
    return leading_to(program, lambda module, call, names: is_training(call, names))


def leading_to(program: Program, is_one: Callable[[Module, Call, frozenset[str]], bool]) -> frozenset[str]:
    """The names of functions with a call of some kind, and of those that call these."""
    names: frozenset[str] = frozenset()
    while True:
        more = {
            function.name
            for module in program.modules
            for call in module.calls
            if is_one(module, call, names)
            for function in module.around(call.node)
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        if more <= names:
            return names
        names |= more


def is_training(call: Call, functions: frozenset[str]) -> bool:
    """Whether a call is a backward pass, or of a function that leads to one."""
    if call.method == "backward":
        return True
    called = call.node.func
    name = call.method or (called.id if isinstance(called, ast.Name) else "")
    return name in functions and (not call.name or not call.name.startswith(("torch.", "builtins.")))


def trains(module: Module, node: ast.AST) -> bool:
    """Whether a backward pass runs inside of a loop or a statement."""
    functions, inside = training_functions(module.program), set(ast.walk(node))
    return any(call.node in inside and is_training(call, functions) for call in module.calls)


def backward_loops(module: Module) -> list[ast.stmt]:
    """The innermost loops around backward passes; without one, the statement with it."""
    loops: dict[ast.stmt, None] = {}
    for call in module.calls:
        if call.method == "backward":
            loops[_loop_around(module, call.node)] = None
    return list(loops)


def _loop_around(module: Module, node: ast.AST) -> ast.stmt:
    for each in module.around(node):
        if isinstance(each, LOOPS):
            return each
        if isinstance(each, FUNCTIONS):
            break
    return module.statement(node)
