"""Figures of training that are a rank's own: where they are shown, and where more hangs on them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.clock_course import Course
from dp2ddp.codemod.idiomatic.loaders import loaders_of
from dp2ddp.codemod.idiomatic.looking import is_elif, last_word
from dp2ddp.codemod.idiomatic.training import trains
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import LOOPS

FIGURE = re.compile(r"loss|acc(uracy)?$|correct|hits|(^|_)acc", re.IGNORECASE)
ASKS = {"isnan", "isinf", "isfinite", "item", "any", "all", "len"}
SHOWING = ("print", "info", "add_scalar", "log", "set_postfix", "set_description", "write")


def loops_of(module: Module) -> list[ast.AST]:
    """The loops of a file that train on a rank's share."""
    shared = {
        loop.node
        for loader in loaders_of(module.program)
        if loader.is_shared
        for loop in loader.loops
        if loop.trains
    }
    return [each for each in module.nodes(*LOOPS) if each in shared and trains(module, each)]


def shown_figures(module: Module) -> Iterator[ast.stmt]:
    """The first line of each function that shows a figure of training, in the loop or behind it."""
    functions: set[ast.AST | None] = set()
    for call in module.calls:
        function = module.function_around(call.node)
        if last_word(call.node.func) not in SHOWING or function in functions:
            continue
        words = (last_word(each) for given in _arguments(call.node) for each in ast.walk(given))
        before = (
            each
            for each in loops_of(module)
            if module.function_around(each) is function and each.lineno < call.node.lineno  # type: ignore[attr-defined]
        )
        if any(map(FIGURE.search, words)) and any(True for _ in before):
            functions.add(function)
            yield module.statement(call.node)


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def deciding_figures(module: Module) -> Iterator[ast.stmt]:
    """Where a figure of training is taken on which more hangs than a line that is shown."""
    for loop in loops_of(module):
        shared = {node for test in skipping(module) for node in ast.walk(test.test)}
        figures = (each for each in ast.walk(loop) if _is_figure(each) and each not in shared)
        yield from dict.fromkeys(module.statement(each) for each in figures if Course().decides(module, each))


def skipping(module: Module) -> Iterator[ast.If]:
    """`if torch.isnan(loss): continue`: where a loop that trains goes on or ends by what a batch holds."""
    for node in module.all(ast.If):
        loop = next((each for each in module.around(node) if isinstance(each, LOOPS)), None)
        asks = any(
            isinstance(each, ast.Call)
            and last_word(each.func) in ASKS
            or isinstance(each, ast.Name)
            and FIGURE.search(each.id)
            for each in ast.walk(node.test)
        )
        leaves = isinstance(node.body[-1], (ast.Continue, ast.Break)) and not node.orelse
        if asks and leaves and not is_elif(module, node) and loop is not None and trains(module, loop):
            yield node


def _is_figure(node: ast.AST) -> bool:
    """`loss.item()`, `float(loss)`, `loss > 1`."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="item")):
            return any(FIGURE.search(last_word(each)) for each in ast.walk(value))
        case ast.Call(func=ast.Name(id="float"), args=[value]):
            return bool(FIGURE.search(last_word(value)))
        case ast.Compare(left=left, comparators=[right]):
            return any(FIGURE.search(last_word(each)) for each in (left, right))
    return False


def swallowing(module: Module) -> Iterator[ast.Try]:
    """`try:` around a backward pass, whose error lets the rank go on."""
    for node in module.all(ast.Try):
        goes_on = any(
            not any(isinstance(each, ast.Raise) for each in ast.walk(handler)) and not _leaves(handler)
            for handler in node.handlers
        )
        is_inside = any(each in loops_of(module) for each in module.around(node))
        if goes_on and is_inside and any(trains(module, each) for each in node.body):
            yield node


def _leaves(handler: ast.ExceptHandler) -> bool:
    calls = (each.func for each in ast.walk(handler) if isinstance(each, ast.Call))
    return any(last_word(each) in ("exit", "_exit", "quit") for each in calls)
