"""DDP502: checkpoints."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.codemod.whereabouts import only_in_main_flow


class TorchSave(Rule):
    """Save checkpoints once.

    ## What it does
    `torch.save(...)` becomes `save_on_rank_zero(...)`, with the same arguments. A hazard where the wrapper as a
    whole is saved.

    ## Why
    When every rank saves to one path and loads from it, 88 of 120 loads failed and 19 gave a mixture of two ranks.

    ## Safety
    Rank 0 writes to a temporary name and moves the file into place; the others wait until it is there. The
    content is the same, `module.` keys included. Of a wrapper that is saved as a whole, pickle keeps the class:
    the file would hold this script's own GraphDDP, which no other script can load.

    ## References
    SEMANTICS 47, 76.
    """

    code = "DDP502"
    name = "torch-save"
    examples = (
        Rewrites(
            before='import torch\nnet = torch.nn.DataParallel(net)\ntorch.save(net.state_dict(), "best.pt")',
            after='import torch\nnet = torch.nn.DataParallel(net)\nsave_on_rank_zero(net.state_dict(), "best.pt")',
        ),
        Flags(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        torch.save(x, "x.pt")
                        return x
                net = torch.nn.DataParallel(Net())
            """,
            message="in the forward of a model",
        ),
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                torch.save({"net": net, "epoch": 3}, "best.pt")
            """,
            message="`net` is saved as a whole",
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                def save(net):
                    torch.save(net, "best.pt")
                save(net.module)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                def save(net):
                    save_on_rank_zero(net, "best.pt")
                save(net.module)
            """,
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nself.save(net)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "one run saves once: rank 0 does, and the others wait for it"
        for effect in facts.effects:
            if effect.kind != "save":
                continue
            hazard = only_in_main_flow(facts, effect.call.node, "torch.save()") or _whole_wrapper(
                facts, effect.call.argument(0, "obj")
            )
            if hazard:
                yield hazard
            else:
                yield Replace(effect.call.node.func, facts.names.helper("save_on_rank_zero"), because)
                yield Lift("save_on_rank_zero", because)


def _whole_wrapper(facts: Facts, saved: ast.expr | None) -> Hazard | None:
    for part in _parts(saved):
        if any(_is_wrapped(facts, part, wrap) for wrap in facts.all_wraps):
            name = facts.script.told(part)
            return Hazard(
                part,
                f"`{name}` is saved as a whole, wrapper and all: the file could be loaded by this script alone",
                f"save `{name}.state_dict()` or `{name}.module`, then convert again",
            )
    return None


def _parts(saved: ast.expr | None) -> Iterator[ast.expr]:
    """What is saved, or the values of the dict that is."""
    if isinstance(saved, ast.Dict):
        yield from saved.values
    elif isinstance(saved, ast.Call):
        yield from (keyword.value for keyword in saved.keywords)
    elif isinstance(saved, (ast.List, ast.Tuple)):
        yield from saved.elts
    elif saved is not None:
        yield saved


def _is_wrapped(facts: Facts, node: ast.expr, wrap: Wrap) -> bool:
    """Whether this is the name that the wrap was given: a parameter of the same name is another thing."""
    script, scopes = facts.script, facts.script.scopes
    if script.told(node) not in wrap.names or _is_taken_out(script, node):
        return False
    if not isinstance(node, ast.Name):
        return True
    here, there = (scopes.lookup(node.id, scopes.scope_of[one]) for one in (node, wrap.call.node))
    return here is there


def _is_taken_out(script: Script, node: ast.expr) -> bool:
    """`net = net.module` somewhere: then the name means both."""
    inner = f"{script.told(node)}.module"
    return any(
        isinstance(one, ast.Assign) and script.told(one.value) == inner for one in script.nodes(ast.Assign)
    )
