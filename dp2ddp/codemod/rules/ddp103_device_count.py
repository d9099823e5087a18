"""DDP103: the number of devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Note, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import Kind
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class DeviceCount(Rule):
    """Ask how many ranks there are where the script asks how many GPUs.

    ## What it does
    `torch.cuda.device_count()` becomes `world_size()`, the number of ranks, in conditions, prints and
    batch-size arithmetic.

    ## Why
    DataParallel used all GPUs of the machine; the number it used is the number of ranks now. Batch sizes stay global.

    ## Safety
    `torch.cuda.is_available()` means the same as before and is not touched. Where device_ids is a literal list, the old
    count was that of the machine and may have been larger: a note says so.

    ## References
    SEMANTICS 71.
    """

    code = "DDP103"
    name = "device-count"
    examples = (
        Rewrites(
            before="""
                import torch
                if torch.cuda.device_count() > 1:
                    print(f"{torch.cuda.device_count()} GPUs")
                    net = torch.nn.DataParallel(net)
            """,
            after="""
                import torch
                if world_size() > 1:
                    print(f"{world_size()} GPUs")
                    net = torch.nn.DataParallel(net)
            """,
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nprint(torch.cuda.is_available())"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        helper = facts.names.helper("world_size")
        for call in facts.script.calls_of("torch.cuda.device_count"):
            if any(
                wrap.device_ids is not None and _holds(facts, wrap.device_ids, call.node)
                for wrap in facts.wraps
                if wrap.kind is Kind.WRAP
            ):
                continue  # goes away with device_ids
            yield Replace(call.node, f"{helper}()", because="as many ranks as DataParallel had devices")
            yield Lift("world_size", because="asks for the number of ranks")
            if facts.count and not _is_condition(facts, call.node):
                yield Note(
                    call.node,
                    f"counted all GPUs of the machine; it is {facts.count} (the device_ids) from now on",
                )


def _is_condition(facts: Facts, node: ast.AST) -> bool:
    """`device_count() > 1`: true before, true now."""
    parent = facts.script.scopes.parents[node]
    return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Gt)


def _holds(facts: Facts, outer, inner) -> bool:  # type: ignore[no-untyped-def]  # two nodes
    return facts.script.positions.span(outer).holds(facts.script.positions.span(inner))
