"""A script's own way of being several processes, beside DataParallel: which flag stands before it, what asks for it.

What needs a process group of the script's own fails where there is none. So if it stands behind a condition, and the
script trains under DataParallel, the condition is false there; it stays false among the ranks, unless it asks the
environment (torchrun has set RANK and WORLD_SIZE) or torch (the ranks have a process group).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.facts.models import DDP
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import CallSite, Script

LAUNCHER = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
}
LAUNCHER |= {"TORCHELASTIC_RUN_ID"}
WHOLE = {"copy", "items", "keys", "values"}  # of os.environ
# What asks torch.distributed on its own, and does something else among ranks: layers that share their statistics,
# metrics that add up over ranks.
ASKING = re.compile(r"\bSyncBatchNorm\b|\bis_initialized\b|\bis_torchelastic_launched\b")
ASKING_LIBRARIES = {
    *(
        "accelerate",
        "catalyst",
        "detectron2",
        "fairseq",
        "fvcore",
        "ignite",
        "kornia",
        "lightning",
        "lightly",
    ),
    *(
        "mmcv",
        "mmdet",
        "mmengine",
        "mmseg",
        "monai",
        "pytorch_lightning",
        "pytorch_metric_learning",
        "speechbrain",
    ),
    *("timm", "torchmetrics", "transformers"),
}
MAKES_GROUP = ("torch.distributed.init_process_group",)
ASKS = "torch.distributed.is_initialized"
WITHOUT_GROUP = {  # what torch answers without a process group, and alike with one
    ASKS,
    *(f"torch.distributed.is_{what}_available" for what in ("nccl", "gloo", "mpi")),
    "torch.distributed.is_torchelastic_launched",  # by the environment
    "torch.distributed.is_available",
}


def needs_group(call: CallSite) -> bool:
    """Whether a call makes a process group, or fails without one."""
    name = call.name or ""
    in_torch = name.startswith("torch.distributed.") and name not in WITHOUT_GROUP
    return name in DDP or in_torch and name.count(".") == 2 and name.rpartition(".")[2][0].islower()


def own_mode(script: Script) -> Iterator[CallSite]:
    return (call for call in script.calls if needs_group(call))


def without_condition(modules: Modules, script: Script) -> ast.AST | None:
    """The first call of the own mode that no condition stands before."""
    return next((call.node for call in own_mode(script) if not is_guarded(modules, script, call.node)), None)


def is_other_mode(modules: Modules, script: Script, spawn: CallSite) -> bool:
    """Whether processes are spawned behind a flag, for a function that is called as it is without the flag."""
    function = spawn.argument(0, "fn")
    definition = modules.definition(script, function) if function is not None else None
    if definition is None or not is_guarded(modules, script, spawn.node):
        return False
    return any(True for _ in modules.graph.calls(definition))


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
    branches: list[tuple[ast.AST, str]] = []
    inner = node
    for parent in script.scopes.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(parent, ast.If) and _depends(script, parent.test):
            side = "body" if inner in parent.body else "orelse" if inner in parent.orelse else ""
            branches += [(parent, side)] if side else []
        inner = parent
    return branches


def is_guarded(modules: Modules, script: Script, node: ast.AST, seen: set[ast.AST] | None = None) -> bool:
    """Whether a condition stands before a node, in its function or around every call of that."""
    seen = set() if seen is None else seen
    inner = node
    for parent in script.scopes.ancestors(node):
        if _is_condition(script, parent, inner):
            return True
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if parent in seen:
                return True  # of functions that call each other, the other calls decide
            seen.add(parent)
            calls = modules.graph.calls((script, parent))
            return all(is_guarded(modules, *call, seen) for call in calls)
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
    """`if not args.distributed: return`, further up in the same block, or in an `else` there."""
    for block in (getattr(parent, "body", None), getattr(parent, "orelse", None)):
        if isinstance(block, list) and inner in block:
            before = block[: block.index(inner)]
            return any(
                isinstance(branch[-1], (ast.Return, ast.Raise)) and _depends(script, test)
                for node in before
                if isinstance(node, ast.If)
                for test, branch in _branches_of(node)
            )
    return False


def _branches_of(choice: ast.If) -> Iterator[tuple[ast.expr, list[ast.stmt]]]:
    """The blocks of if, elif and else, each with the last test before it."""
    yield choice.test, choice.body
    match choice.orelse:
        case [ast.If() as other]:
            yield from _branches_of(other)
        case [*block] if block:
            yield choice.test, block


def _depends(script: Script, test: ast.expr) -> bool:
    names = [node for node in ast.walk(test) if isinstance(node, (ast.Name, ast.Attribute))]
    return bool(names) and "__name__" not in script.text_of(test)


def asks_launcher(script: Script, part: ast.AST) -> bool:
    """Whether a part of a script names what torchrun sets, to read it or to set it, or hands on all of os.environ."""
    return any(_names_launcher(script, node) for node in ast.walk(part))


def _names_launcher(script: Script, node: ast.AST) -> bool:
    """`os.environ["RANK"]`, `("RANK", "PMI_RANK")` for a loop over names, `dict(os.environ)`."""
    match node:
        case ast.Constant(value=str(text)):
            return text in LAUNCHER
        case ast.Name() | ast.Attribute() if script.scopes.name(node) == "os.environ":
            parent = script.scopes.parents[node]
            is_one = isinstance(parent, (ast.Subscript, ast.Compare))
            return not (is_one or isinstance(parent, ast.Attribute) and parent.attr not in WHOLE)
    return False


def launcher_matters(modules: Modules) -> bool:
    """Whether anything of the project, or a library that it imports, may ask whether it runs among ranks."""
    return any(
        _names_what_asks(script)
        or _imports_asking(script)
        or any(_names_launcher(script, node) for node in script.scopes.nodes)
        for script in modules.scripts
    )


def _names_what_asks(script: Script) -> bool:
    """In code, or in a text for a getattr; not in comments and docstrings."""
    if not ASKING.search(script.source.text):
        return False
    for node in ast.walk(script.tree):
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.alias(name=text):
                pass
            case ast.Constant(value=str(text)) if not isinstance(script.scopes.parents[node], ast.Expr):
                pass
            case _:
                continue
        if ASKING.search(text):
            return True
    return False


def _imports_asking(script: Script) -> bool:
    tops = {origin.partition(".")[0] for origin in script.scopes.top.imports.values()}
    return not tops.isdisjoint(ASKING_LIBRARIES)


def tests_for_ddp(script: Script) -> Iterator[ast.Call]:
    """`isinstance(model, DistributedDataParallel)`: true for the new wrapper, which is one by name."""
    for call in script.calls_of("builtins.isinstance"):
        if len(call.node.args) == 2 and script.scopes.name(call.node.args[1]) in DDP:
            yield call.node


def kinds_with_ddp(script: Script) -> Iterator[tuple[ast.Tuple, list[ast.expr]]]:
    """Tuples of classes, for an isinstance, with DistributedDataParallel among them; and the others in each."""
    for node in script.nodes(ast.Tuple):
        assert isinstance(node, ast.Tuple)
        names = [script.scopes.name(element) for element in node.elts]
        is_of_classes = all(isinstance(element, (ast.Name, ast.Attribute)) for element in node.elts)
        if is_of_classes and "torch.nn.DataParallel" not in names and not set(names).isdisjoint(DDP):
            yield node, [element for element, name in zip(node.elts, names, strict=True) if name not in DDP]
