"""What a program does itself with replicas: other parts in wrappers, batch norm over all replicas."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.knowledge.derived import CLASSES, WRAPPERS
from dp2ddp.codemod.looks.mentions import mentions
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import inside, last_name
from dp2ddp.codemod.model.program import Program

CALLBACK = (
    "__data_parallel_replicate__"  # of layers, called behind `replicate` (Synchronized-BatchNorm-PyTorch)
)
PARTS = ("replicate", "scatter", "parallel_apply", "gather")
OF_MASTERS = {"run_master", "register_slave"}


def has_own_parts(program: Program) -> bool:
    """Whether wrappers have to go through DataParallel's parts, one by one."""
    put = ((module, *each) for module in program.modules for each in parts_put(module))
    return has_callbacks(program) or any(
        not _is_of_torch(module, owner) and program.reach.runs(module, node) for module, node, owner in put
    )


def is_own_class(module: Module, node: ast.expr) -> bool:
    """Whether DataParallel is named as the base of a class that overrides parts of it."""
    parent = module.parents[node]
    if not isinstance(parent, ast.ClassDef) or node not in parent.bases:
        return False
    return any(isinstance(each, ast.FunctionDef) and each.name in (*PARTS, "forward") for each in parent.body)


@lru_cache(maxsize=1)
def has_own_classes(program: Program) -> bool:
    """Whether there are classes of libraries or of its own that have parts of DataParallel in ways of their own."""
    named = ((module, *each) for module in program.modules for each in mentions(module, CLASSES))
    return any(name in WRAPPERS or is_own_class(module, node) for module, node, name in named)


@lru_cache(maxsize=1)  # each file's rules ask
def has_callbacks(program: Program) -> bool:
    """Whether layers are called when they have been replicated, by code that can run; or else each is on its own."""
    return any(
        program.reach.runs(module, node)
        for module in program.modules
        for node in module.nodes(ast.Attribute, ast.Constant)
        if CALLBACK in (getattr(node, "attr", ""), getattr(node, "value", ""))
    )


def is_master(node: ast.ClassDef) -> bool:
    """Whether a class brings the messages of replicas together: a SyncMaster."""
    names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    calls = {last_name(each.func) for each in inside(node, ast.Call)}
    return names >= OF_MASTERS and "_master_callback" in calls


def talks_through_master(node: ast.FunctionDef) -> bool:
    """Whether a layer's callback gets its pipe from a SyncMaster."""
    return any(each.attr == "register_slave" for each in inside(node, ast.Attribute))


def replaced_in_torch(module: Module) -> Iterator[ast.expr]:
    """`torch.nn.parallel.data_parallel.replicate = ...`, `nn.DataParallel.replicate = ...`."""
    return (node for node, owner in parts_put(module) if _is_of_torch(module, owner))


def parts_put(module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`net.replicate = ...`, `setattr(net, "gather", ...)`: what is replaced, and of whom."""
    for node in module.nodes(ast.Attribute, ast.Call):
        match node:
            case (
                ast.Attribute(value=owner, attr=part, ctx=ast.Store())
                | ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=part), _])
            ) if part in PARTS and ast.unparse(owner) != "self":
                yield node, owner


def _is_of_torch(module: Module, owner: ast.expr) -> bool:
    return (module.name(owner) or "").startswith("torch.")
