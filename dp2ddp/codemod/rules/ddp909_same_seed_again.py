"""DDP909: the same seed again and again while training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.script import Call, Script
from dp2ddp.codemod.facts.turns import LOOPS
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

SEEDS = (
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
)


class SameSeedAgain(Rule):
    """Say where a loop sets the same seed again.

    ## What it does
    A hazard for `torch.manual_seed(...)` inside a loop with a seed that does not change from turn to turn.

    ## Why
    On ranks > 0 what the model draws (dropout) comes from a stream of its own, which begins anew when the script
    sets a seed. A rank tells by the seed; the same seed with draws behind it looks like no new seed.

    ## Safety
    A seed before the loop is no hazard, and neither is one that the loop changes.

    ## References
    templates/replicas.py, DeviceStream; SEMANTICS 63.
    """

    code = "DDP909"
    name = "same-seed-again"
    examples = (
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                for epoch in range(3):
                    torch.manual_seed(0)
                    net(torch.randn(4, 2))
            """,
            message="same seed again",
        ),
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                def train():
                    torch.manual_seed(0)
                    net(torch.randn(4, 2))
                for epoch in range(3):
                    train()
            """,
            message="same seed again",
        ),
        Untouched("""
            import torch
            torch.manual_seed(0)
            for epoch in range(3):
                torch.manual_seed(epoch)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for call in facts.script.calls:
            if call.name in SEEDS and _is_repeated(facts.script, call):
                yield Hazard(
                    call.node,
                    f"{call.name}() sets the same seed again in a loop, which ranks > 0 cannot always tell",
                    "give each turn a seed of its own (seed + epoch), or set the seed once, before the loop",
                )


def _is_repeated(script: Script, call: Call) -> bool:
    """Whether it runs once a turn of a loop, with nothing in its arguments that the turn changes."""
    around = list(script.scopes.ancestors(call.node))
    used = {
        node.id for argument in call.node.args for node in ast.walk(argument) if isinstance(node, ast.Name)
    }
    if used & _changing(around):
        return False
    return any(isinstance(node, LOOPS) or _is_called_in_a_loop(script, node) for node in around)


def _changing(around: list[ast.AST]) -> set[str]:
    """What the loops around set, and what the functions around are given."""
    names: set[str] = set()
    for node in around:
        if isinstance(node, LOOPS):
            names |= {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names |= {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    return names


def _is_called_in_a_loop(script: Script, node: ast.AST) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    calls = (one.node for one in script.calls if script.scopes.definition(one.node.func) is node)
    return any(isinstance(parent, LOOPS) for one in calls for parent in script.scopes.ancestors(one))
