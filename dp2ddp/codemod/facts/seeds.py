"""Seeds that a script may set more than once, to the same number."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.iterations import LOOPS
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import CallSite, Script

OF_ALL_DEVICES = (
    *("torch.manual_seed", "torch.random.manual_seed"),
    *("torch.cuda.manual_seed_all", "torch.cuda.random.manual_seed_all"),
)
OF_ONE_DEVICE = ("torch.cuda.manual_seed", "torch.cuda.random.manual_seed")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def seeds_to_tell(modules: Modules, script: Script) -> Iterator[CallSite]:
    """Seeds of all devices that a rank cannot notice by itself: they may be set to the same number twice, or the
    first device may have the same number already."""
    calls = list(script.calls_of(*OF_ALL_DEVICES))
    one_alone = calls and any(True for other in modules.scripts for _ in seeds_of_first(modules, other))
    for call in calls:
        if one_alone or _repeats(modules, script, call):
            yield call


def seeds_of_first(modules: Modules, script: Script) -> Iterator[CallSite]:
    """Seeds of the first device that give it another number than the others have, or begin it anew."""
    calls = [call for call in script.calls_of(*OF_ONE_DEVICE) if not _has_seed_of_all(script, call)]
    of_all = calls and any(True for other in modules.scripts for _ in other.calls_of(*OF_ALL_DEVICES))
    for call in calls:
        if of_all or _repeats(modules, script, call):
            yield call


def _repeats(modules: Modules, script: Script, call: CallSite) -> bool:
    return _may_repeat(modules, script, call.node, _used(call.node.args), set())


def _has_seed_of_all(script: Script, call: CallSite) -> bool:
    """Whether the same function seeds all devices with the same number: then the one device is no matter of its own."""
    function = script.scopes.function(call.node)
    given = [script.text_of(argument) for argument in call.node.args]
    return any(
        script.scopes.function(other.node) is function
        and [script.text_of(argument) for argument in other.node.args] == given
        for other in script.calls_of(*OF_ALL_DEVICES)
    )


def _may_repeat(modules: Modules, script: Script, node: ast.AST, used: set[str], seen: set[ast.AST]) -> bool:
    """Whether a call runs in a loop that does not change what it is given, or in a function that is called twice."""
    for parent in script.scopes.ancestors(node):
        if isinstance(parent, LOOPS):
            if not used & _stored(parent):
                return True
            used = used - _stored(parent)
            if not used:
                return False  # another number in every turn
        if isinstance(parent, Function):
            if parent in seen:
                return False  # of functions that call each other, the other calls decide
            seen.add(parent)
            return _function_repeats(modules, script, parent, used, seen)
    return False


def _function_repeats(
    modules: Modules, script: Script, function: Function, used: set[str], seen: set[ast.AST]
) -> bool:
    calls = list(modules.graph.calls((script, function)))
    parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    if len({tuple(other.text_of(argument) for argument in call.args) for other, call in calls}) < len(calls):
        return True
    for other, call in calls:
        passed = (
            _used([*call.args, *(keyword.value for keyword in call.keywords)]) if used & parameters else set()
        )
        if _may_repeat(modules, other, call, passed or used - parameters, {*seen}):
            return True
    return False


def _used(arguments: list[ast.expr]) -> set[str]:
    return {node.id for argument in arguments for node in ast.walk(argument) if isinstance(node, ast.Name)}


def _stored(loop: ast.AST) -> set[str]:
    return {
        node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
