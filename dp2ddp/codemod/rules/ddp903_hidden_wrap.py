"""DDP903: a wrap that cannot be seen."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import class_references, is_type_test
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class HiddenWrap(Rule):
    """Say where DataParallel is handed around and cannot be followed.

    ## What it does
    A hazard where the class stands without being called or tested: passed to a function, put into a dict,
    fetched with getattr.

    ## Why
    The wrap happens somewhere else, with arguments that are not seen here, and would stay as it is.

    ## Safety
    An alias (`DP = nn.DataParallel`, `import ... as`) is followed and no hazard.

    ## References
    IDIOMS: own and vendored wrappers, 12 repositories.
    """

    code = "DDP903"
    name = "hidden-wrap"
    examples = (
        Flags(
            before="""
                from torch import nn
                net = build(nn.Linear(2, 2), nn.DataParallel)
            """,
            message="handed on",
        ),
        Flags(
            before="""
                from torch import nn
                net = getattr(nn, "DataParallel")(net)
                other = nn.DataParallel(net)
            """,
            message="by its name",
        ),
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
        Untouched(
            "from torch import nn\nDP = nn.DataParallel\nnet = DP(net)\nif isinstance(net, DP):\n    pass"
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for reference in class_references(facts.script):
            if not is_type_test(facts.script, reference) and not _is_alias(facts, reference):
                yield Hazard(
                    reference,
                    "DataParallel is handed on, and the wrap cannot be seen",
                    "call it here, then convert again",
                )
        for call in facts.script.calls_of("builtins.getattr"):
            if literal(call.argument(1)) == "DataParallel":
                yield Hazard(
                    call.node,
                    "DataParallel is fetched by its name",
                    "write nn.DataParallel, then convert again",
                )
        for wrap in facts.wraps:
            if _is_result(facts, wrap.module):
                yield Hazard(
                    wrap.call.node,
                    "what is wrapped here is not a model but the result of one",
                    "wrap the model",
                )


def _is_alias(facts: Facts, reference: ast.expr) -> bool:
    parent = facts.script.scopes.parents[reference]
    return isinstance(parent, (ast.Assign, ast.ClassDef))


def _is_result(facts: Facts, module: ast.expr | None) -> bool:
    """`criterion(x, y)` where criterion is a module made in this script: a tensor."""
    made = facts.script.scopes.value(module)
    if not isinstance(made, ast.Call):
        return False
    maker = facts.script.scopes.value(made.func)
    return isinstance(maker, ast.Call) and (facts.script.scopes.name(maker.func) or "").startswith(
        "torch.nn."
    )
