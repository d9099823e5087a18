"""DDP903: a wrap around something that is no model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class NoModel(Rule):
    """Say where DataParallel is put around something that is no model.

    ## What it does
    A hazard where the result of a loss or a layer, a tensor, is wrapped.

    ## Why
    On a CPU that goes unnoticed; on two devices DataParallel itself fails.

    ## Safety
    Only what is certainly a result is told: the call of a module that the script made itself.

    ## References
    docs/idioms.md#the-wrap.
    """

    code = "DDP903"
    name = "no-model"
    nodes = ("Call",)
    examples = (
        Flags(
            before="""
                from torch import nn
                out = criterion(net(x), y)
                criterion = nn.CrossEntropyLoss()
                out = nn.DataParallel(out)
                loss = nn.CrossEntropyLoss()(x, y)
                loss = nn.DataParallel(criterion(x, y))
            """,
            message="not a model",
        ),
        Flags(
            before="""
                import torch.nn as nn
                import torch.nn.functional as F
                loss = F.smooth_l1_loss(q, target)
                loss = nn.DataParallel(loss, device_ids=[0, 1])
            """,
            message="not a model",
        ),
        Untouched("from torch import nn\ncriterion = nn.DataParallel(nn.CrossEntropyLoss())"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for wrap in facts.wraps:
            if _is_result(facts, wrap):
                yield Hazard(
                    wrap.call.node,
                    "what is wrapped here is not a model but the result of one",
                    "wrap the model",
                )


def _is_result(facts: Facts, wrap: Wrap) -> bool:
    """Whether a tensor is wrapped in any case: every other value of its name is the result of a loss or layer."""
    made = [wrap.module]
    if isinstance(wrap.module, ast.Name):
        scope = facts.script.scopes.lookup(wrap.module.id, facts.script.scopes.scope_of[wrap.module])
        made = [
            node
            for node in (scope.values if scope else {}).get(wrap.module.id, [])
            if node is not wrap.call.node
        ]
    return bool(made) and all(_is_call_of_loss(facts, node) for node in made)


def _is_call_of_loss(facts: Facts, made: ast.expr | None) -> bool:
    """`criterion(x, y)` where criterion is a module made in this script, or `F.cross_entropy(x, y)`."""
    if not isinstance(made, ast.Call):
        return False
    maker = facts.script.scopes.value(made.func)
    maker_name = maker.func if isinstance(maker, ast.Call) else made.func
    name = facts.script.scopes.name(maker_name) or ""
    return name.startswith("torch.nn." if isinstance(maker, ast.Call) else "torch.nn.functional.")
