"""A script's own way of being several processes, beside DataParallel: which flag stands before it, what asks for it.

What needs a process group of the script's own fails where there is none. So if it stands behind a condition, and the
script trains under DataParallel, the condition is false there; it stays false among the ranks, unless it asks the
environment (torchrun has set RANK and WORLD_SIZE) or torch (the ranks have a process group).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.models import DDP
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import Call, Script, literal

LAUNCHER = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
MAKES_GROUP = ("torch.distributed.init_process_group",)
ASKS = "torch.distributed.is_initialized"
WITHOUT_GROUP = {  # what torch answers without a process group, and alike with one
    ASKS,
    *(f"torch.distributed.is_{what}_available" for what in ("nccl", "gloo", "mpi")),
    "torch.distributed.is_available",
}
DEEPEST = 5  # functions that call each other end somewhere


def needs_group(call: Call) -> bool:
    """Whether a call makes a process group, or fails without one."""
    name = call.name or ""
    in_torch = name.startswith("torch.distributed.") and name not in WITHOUT_GROUP
    return name in DDP or in_torch and name.count(".") == 2 and name.rpartition(".")[2][0].islower()


def own_mode(script: Script) -> Iterator[Call]:
    return (call for call in script.calls if needs_group(call))


def without_condition(modules: Modules, script: Script) -> ast.AST | None:
    """The first call of the own mode that no condition stands before."""
    return next((call.node for call in own_mode(script) if not is_guarded(modules, script, call.node)), None)


def is_other_mode(modules: Modules, script: Script, spawn: Call) -> bool:
    """Whether processes are spawned behind a flag, for a function that is called as it is without the flag."""
    function = spawn.argument(0, "fn")
    found = modules.definition(script, function) if function is not None else None
    if found is None or not is_guarded(modules, script, spawn.node):
        return False
    return any(True for _ in _calls_of(modules, *found))


def in_own_branch(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in a branch that makes a process group or a DistributedDataParallel: it never runs here."""
    branches = _branches(script, node)
    makers = (call.node for call in script.calls if call.name in DDP or call.name in MAKES_GROUP)
    return any(next(iter(_branches(script, maker)), None) in branches for maker in makers)


def in_own_function(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in a function that makes a process group: it does not run under DataParallel."""
    function = script.scopes.function(node)
    return function is not None and any(
        call.name in MAKES_GROUP and script.scopes.function(call.node) is function for call in script.calls
    )


def _branches(script: Script, node: ast.AST) -> list[tuple[ast.AST, str]]:
    """The branches of `if` that a node stands in, in its function, from the inside out."""
    found: list[tuple[ast.AST, str]] = []
    inner = node
    for parent in script.scopes.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(parent, ast.If) and _depends(script, parent.test):
            side = "body" if inner in parent.body else "orelse" if inner in parent.orelse else ""
            found += [(parent, side)] if side else []
        inner = parent
    return found


def is_guarded(modules: Modules, script: Script, node: ast.AST, depth: int = DEEPEST) -> bool:
    """Whether a condition stands before a node, in its function or around every call of that."""
    inner = node
    for parent in script.scopes.ancestors(node):
        if _is_condition(script, parent, inner):
            return True
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            calls = list(_calls_of(modules, script, parent))
            return depth > 0 and all(is_guarded(modules, *call, depth - 1) for call in calls)
        inner = parent
    return False


def _is_condition(script: Script, parent: ast.AST, inner: ast.AST) -> bool:
    """Whether it depends on something whether a part of this runs: on no constant, and not on `__name__`."""
    match parent:
        case ast.If(test=test) | ast.IfExp(test=test):
            return inner is not test and _depends(script, test) or _is_behind_return(script, parent, inner)
        case ast.BoolOp(values=values):
            return inner is not values[0]
    return _is_behind_return(script, parent, inner)


def _is_behind_return(script: Script, parent: ast.AST, inner: ast.AST) -> bool:
    """`if not args.distributed: return`, further up in the same block."""
    for block in (getattr(parent, "body", None), getattr(parent, "orelse", None)):
        if isinstance(block, list) and inner in block:
            before = block[: block.index(inner)]
            return any(
                isinstance(one, ast.If)
                and isinstance(one.body[-1], (ast.Return, ast.Raise))
                and _depends(script, one.test)
                for one in before
            )
    return False


def _depends(script: Script, test: ast.expr) -> bool:
    names = [node for node in ast.walk(test) if isinstance(node, (ast.Name, ast.Attribute))]
    return bool(names) and "__name__" not in script.told(test)


def _calls_of(modules: Modules, script: Script, function: ast.AST) -> Iterator[tuple[Script, ast.AST]]:
    """Where a function of the project is called; a method, by its name."""
    name = getattr(function, "name", "")
    is_method = isinstance(script.scopes.parents[function], ast.ClassDef)
    for other in modules.scripts:
        for call in other.calls:
            found = modules.definition(other, call.node.func)
            if (
                (found is not None and found[1] is function)
                or is_method
                and call.method == name
                and not call.name
            ):
                yield other, call.node


def asks_launcher(script: Script, part: ast.AST) -> bool:
    """Whether a part of a script reads what torchrun sets: `os.environ["RANK"]`, `os.getenv(...)`, `"RANK" in ...`."""
    return any(_asked(script, node) in LAUNCHER for node in ast.walk(part))


def _asked(script: Script, node: ast.AST) -> object:
    """The name of the environment variable that an expression reads."""
    name = script.scopes.name
    match node:
        case ast.Subscript(value=owner, slice=key, ctx=ast.Load()) if name(owner) == "os.environ":
            return literal(key)
        case ast.Compare(left=key, comparators=[owner]) if name(owner) == "os.environ":
            return literal(key)
        case ast.Call(func=function, args=[key, *_]) if name(function) in ("os.environ.get", "os.getenv"):
            return literal(key)
    return None


def launcher_is_asked(modules: Modules) -> bool:
    """Whether any file of the project reads what torchrun sets."""
    mentioning = (one for one in modules.scripts if any(name in one.source.text for name in LAUNCHER))
    return any(asks_launcher(script, script.tree) for script in mentioning)


def tests_for_ddp(script: Script) -> Iterator[ast.Call]:
    """`isinstance(model, DistributedDataParallel)`: true for the new wrapper, which is one by name."""
    for call in script.calls_of("builtins.isinstance"):
        if len(call.node.args) == 2 and script.scopes.name(call.node.args[1]) in DDP:
            yield call.node
