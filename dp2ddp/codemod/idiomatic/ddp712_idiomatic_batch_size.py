"""DDP712: the batch size, where it is used for more than the loader."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.idiomatic.loading import Loading, read_loaders
from dp2ddp.codemod.idiomatic.once import read_once
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class BatchSize(Rule):
    """Say where the batch size is needed that a rank has.

    ## What it does
    A hazard where the batch size of the training loader is used for anything but loaders, output, and arithmetic with
    the size of a data set.

    ## Why
    It stays the size of the whole batch; what is made with it (targets, hidden states, a mask) would have more rows
    than the rank's own batch.

    ## Safety
    Other names for the same number are followed to where they are bound once.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP712"
    name = "idiomatic-batch-size"
    nodes = ("Attribute", "Name")
    examples = (
        Flags(
            before="""
                import torch
                from torch.utils.data import DataLoader
                net = torch.nn.DataParallel(net)
                loader = DataLoader(data, batch_size=args.batch_size)
                for x, y in loader:
                    hidden = torch.zeros(1, args.batch_size, 8)
                    loss = criterion(net(x, hidden), y)
                    loss.backward()
            """,
            message="args.batch_size",
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader
            net = torch.nn.DataParallel(net)
            loader = DataLoader(data, batch_size=args.batch_size)
            steps = len(data) // args.batch_size
            for x, y in loader:
                loss = criterion(net(x), y)
                loss.backward()
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        for loading in read_loaders(facts):
            if loading.trains:
                yield from _elsewhere(facts, loading)


def _elsewhere(facts: Facts, loading: Loading) -> Iterator[Finding]:
    program, size = facts.program, loading.batch_size
    if not isinstance(size, (ast.Name, ast.Attribute)):
        return
    variable = program.variable(size)
    for node in facts.script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if not isinstance(node.ctx, ast.Load) or program.variable(node) != variable or node is size:
            continue
        if not facts.reach.holds(facts.script, node) or _is_known(facts, facts.script, node):
            continue
        yield Hazard(
            node,
            f"`{facts.script.text_of(node)}` is the size of the whole batch, and is used here beside the loader",
            "use the size of the batch at hand (len(x)), or take the exact style",
        )


def _is_known(facts: Facts, script: Script, node: ast.AST) -> bool:
    """In a loader, in output, with the size of a data set, or on its way to one of these."""
    if read_once(facts).holds(node):
        return True
    for parent in script.scopes.ancestors(node):
        match parent:
            case ast.Call(func=func):
                last = (script.scopes.name(func) or script.text_of(func)).rpartition(".")[2]
                if "DataLoader" in last or last in ("print", "info", "format"):
                    return True
            case ast.BinOp(left=left, right=right):
                if any(
                    "len(" in script.text_of(side) or "device_count" in script.text_of(side)
                    for side in (left, right)
                ):
                    return True
            case ast.stmt():
                return False
    return False
