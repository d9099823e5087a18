"""CUDA_VISIBLE_DEVICES, where a script sets it itself: the ranks may only join, and choose devices, behind that."""

from __future__ import annotations

import ast

from dp2ddp.codemod.facts.draws import HOST_STREAMS
from dp2ddp.codemod.facts.effects import TRACKERS
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.sinks import FOLDERS_AND_FILES, OPENERS, PATH_METHODS, PROCESSES

DRAWS_OR_DEVICES = (*HOST_STREAMS, "torch.", "uuid.", "secrets.", "os.urandom")
HARMLESS_OF_TORCH = (
    *("torch.no_grad", "torch.jit", "torch.set_printoptions", "torch.backends."),
    *("torch.device", "torch.cuda.is_available", "torch.tensor", "torch.finfo", "torch.Size"),
)
LOUD = {"builtins.print", "torch.save", *OPENERS, *FOLDERS_AND_FILES, *PROCESSES, *TRACKERS}
LOUD_METHODS = {"info", "warning", "debug", *PATH_METHODS}


def acts(script: Script, node: ast.AST) -> bool:
    """Whether running this draws a number or asks for a device."""
    names = (script.scopes.name(call.func) or "" for call in ast.walk(node) if isinstance(call, ast.Call))
    return any(name.startswith(DRAWS_OR_DEVICES) and not name.startswith(HARMLESS_OF_TORCH) for name in names)


def is_quiet(script: Script, node: ast.AST, seen: set[ast.AST] | None = None) -> bool:
    """Whether running this draws nothing, prints nothing and writes nothing, functions of the script included."""
    seen = set() if seen is None else seen
    if node in seen:
        return True  # of functions that call each other, the others decide
    seen.add(node)
    if acts(script, node):
        return False
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if script.scopes.name(call.func) in LOUD or method in LOUD_METHODS:
            return False
        if not all(is_quiet(script, called, seen) for called in script.scopes.definitions(call.func)):
            return False
    return True


def is_setting(script: Script, statement: ast.stmt) -> bool:
    """`os.environ[...] = ...`, of any variable."""
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=value)]):
            return script.scopes.name(value) == "os.environ"
        case ast.Expr(value=ast.Call(func=func)):
            return script.scopes.name(func) in ("os.putenv", "os.environ.setdefault")
    return False


def sets_visible_devices(script: Script, statement: ast.stmt) -> bool:
    return is_setting(script, statement) and "CUDA_VISIBLE_DEVICES" in ast.unparse(statement)


def settings_in_functions(script: Script) -> list[ast.stmt]:
    """CUDA_VISIBLE_DEVICES, set in functions of a module: they run when the ranks have joined."""
    statements = (node for node in script.nodes(ast.Assign, ast.Expr) if isinstance(node, ast.stmt))
    return [
        statement
        for statement in statements
        if sets_visible_devices(script, statement) and script.scopes.function(statement)
    ]


def behind_visible_devices(script: Script, act: ast.stmt | None) -> tuple[ast.stmt | None, ast.stmt | None]:
    """Where to join, and the setting that stands in the way if it cannot be behind it.

    The setting may stand in the block of the first act, or in a function that this block calls, once.
    """
    statements = (node for node in script.nodes(ast.Assign, ast.Expr) if isinstance(node, ast.stmt))
    settings = [statement for statement in statements if sets_visible_devices(script, statement)]
    if act is None or not settings:
        return act, None
    last = settings[-1]
    if _has_run_before(script, last, act):
        return act, None
    path = _way_to(script, act, last)
    if path is None or not all(is_quiet(script, node) for node in path):
        return act, last
    block = block_of(script, last)
    following = block[block.index(last) + 1 :]
    return (following[0], None) if following else (act, last)


def behind_new_start(script: Script, act: ast.stmt | None) -> ast.stmt | None:
    """A process that starts the script anew (PYTHONHASHSEED) must not have joined; ranks join in its second start."""
    while act is not None and any(_takes_the_place(script, node) for node in ast.walk(act)):
        block = block_of(script, act)
        following = block[block.index(act) + 1 :]
        if not isinstance(act, ast.If) or not following:
            return act
        act = following[0]
    return act


def _takes_the_place(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (script.scopes.name(node.func) or "").startswith(
        ("os.execv", "os.execl")
    )


def _has_run_before(script: Script, setting: ast.stmt, act: ast.stmt) -> bool:
    """At module level, above the first act."""
    above = script.positions.span(setting).start < script.positions.span(act).start
    return above and script.scopes.function(setting) is None


def _way_to(script: Script, act: ast.stmt, setting: ast.stmt) -> list[ast.stmt] | None:
    """The statements that run between the first act and the setting; None if that cannot be told."""
    block = block_of(script, act)
    rest = block[block.index(act) :]
    if setting in rest:
        return rest[: rest.index(setting)]
    function = script.scopes.function(setting)
    if not isinstance(function, ast.FunctionDef) or setting not in function.body:
        return None
    calls = [call.node for call in script.calls if script.scopes.definition(call.node.func) is function]
    if len(calls) != 1:
        return None
    statement = script.scopes.statement(calls[0])
    if statement not in rest or not isinstance(statement, (ast.Expr, ast.Assign)):
        return None
    return [*rest[: rest.index(statement)], *function.body[: function.body.index(setting)]]


def block_of(script: Script, statement: ast.stmt) -> list[ast.stmt]:
    """The list of statements that a statement stands in."""
    parent = script.scopes.parents[statement]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return [statement]
