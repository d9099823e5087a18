"""A distributed mode of the script's own, which a conversion leaves as it is: it is not run."""

from __future__ import annotations

import ast

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import FUNCTIONS


def in_own_mode(module: Module, node: ast.AST) -> bool:
    """Whether a node stands in a function that makes a process group and wraps nothing in DataParallel."""
    return any(_makes_group(module, each) for each in module.around(node) if isinstance(each, FUNCTIONS))


def _makes_group(module: Module, function: ast.AST) -> bool:
    known: dict[ast.AST, bool] = module.__dict__.setdefault("_making_groups", {})
    if function not in known:
        inside = list(ast.walk(function))
        calls = {module.name(each.func) for each in inside if isinstance(each, ast.Call)}
        names = (each for each in inside if isinstance(each, (ast.Name, ast.Attribute)))
        known[function] = "torch.distributed.init_process_group" in calls and not any(
            does(module.name(each)) is Does.WRAP for each in names
        )
    return known[function]
