"""Say where DataParallel is put around something that is no model.

A hazard where the result of a loss or a layer, a tensor, is wrapped.

On a CPU that goes unnoticed; on two devices DataParallel itself fails.

Only what is certainly a result is told: the call of a module that the script made itself.

docs/training.md#models.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags

NO_MODEL = Reason("no-model", "what is wrapped here is not a model but the result of one", "wrap the model")


class NoModel(Rule):
    nodes = ("Call",)
    examples = (
        flags("""
            # not a model
            import torch.nn as nn
            import torch.nn.functional as F
            loss = F.smooth_l1_loss(q, target)
            loss = nn.DataParallel(loss, device_ids=[0, 1])
        """),
        Untouched("from torch import nn\ncriterion = nn.DataParallel(nn.CrossEntropyLoss())"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for wrap in find_wraps(module.program):
            given = wrap.call.argument(0, "module") if wrap.call and wrap.module is module else None
            if wrap.call and given is not None and _is_result(module, given, wrap.call.node):
                yield Hazard(wrap.call.node, NO_MODEL)


def _is_result(module: Module, given: ast.expr, wrap: ast.Call) -> bool:
    """Whether a tensor is wrapped in any case: every other value of its name is the result of a loss or layer."""
    made: list[ast.AST | None] = [given]
    if isinstance(given, ast.Name):
        made = [binding.node for binding in module.bindings(given) if binding.node is not wrap]
    return bool(made) and all(isinstance(each, ast.Call) and _is_call_of_loss(module, each) for each in made)


def _is_call_of_loss(module: Module, call: ast.Call) -> bool:
    """`criterion(x, y)` where criterion is a module made in this script, or `F.cross_entropy(x, y)`."""
    maker = module.value(call.func)
    if isinstance(maker, ast.Call):
        return (module.name(maker.func) or "").startswith("torch.nn.")
    return (module.name(call.func) or "").startswith("torch.nn.functional.")
