"""DDP103: the number of devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Note, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import WrapKind
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

ANY = {(ast.Gt, 0), (ast.GtE, 1), (ast.NotEq, 0), (ast.Eq, 0), (ast.Lt, 1), (ast.LtE, 0)}
MIRRORED = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq
}  # fmt: skip


class DeviceCount(Rule):
    """Ask how many ranks there are where the script asks how many GPUs.

    ## What it does
    `torch.cuda.device_count()` becomes `world_size()`, the number of ranks, in conditions, prints and
    batch-size arithmetic.

    ## Why
    DataParallel used all GPUs of the machine; the number it used is the number of ranks now. Batch sizes stay global.

    ## Safety
    `torch.cuda.is_available()` means the same as before and is not touched, nor is a question whether there is any GPU
    (`device_count() >= 1`, `if not device_count():`): without one, there still is a rank. Where device_ids is a literal
    list, the old count was that of the machine and may have been larger: a note says so.

    ## References
    docs/semantics.md#device-count.
    """

    code = "DDP103"
    name = "device-count"
    nodes = ("Call",)
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
        Untouched("""
            import torch
            assert torch.cuda.device_count() >= 1, "needs a GPU"
            device = "cuda" if torch.cuda.device_count() else "cpu"
            net = torch.nn.DataParallel(net)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        helper = facts.names.helper(strategy.helper("world_size"))
        for call in facts.script.calls_of("torch.cuda.device_count"):
            if any(
                wrap.device_ids is not None and holds(facts, wrap.device_ids, call.node)
                for wrap in facts.wraps
                if wrap.kind is WrapKind.WRAP
            ):
                continue  # goes away with device_ids
            if asks_for_any(facts, call.node):
                continue
            yield Replace(call.node, f"{helper}()", because="as many ranks as DataParallel had devices")
            yield Lift(strategy.helper("world_size"), because="asks for the number of ranks")
            if facts.count and not _is_condition(facts, call.node):
                yield Note(
                    call.node,
                    f"counted all GPUs of the machine; it is {facts.count} (the device_ids) from now on",
                )


def asks_for_any(facts: Facts, node: ast.AST) -> bool:
    """`device_count() >= 1`, `== 0`, `if device_count():`: whether there is a GPU; without one there is a rank."""
    parent = facts.script.scopes.parents[node]
    match parent:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=value)]) if left is node:
            return (type(op), value) in ANY
        case ast.Compare(ops=[op], comparators=[right]) if right is node:
            return (MIRRORED.get(type(op)), literal(parent.left)) in ANY
        case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
            return True
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
            return test is node
    return False


def _is_condition(facts: Facts, node: ast.AST) -> bool:
    """`device_count() > 1`: true before, true now."""
    parent = facts.script.scopes.parents[node]
    return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Gt)


def holds(facts: Facts, outer, inner) -> bool:  # type: ignore[no-untyped-def]  # two nodes
    return facts.script.positions.span(outer).holds(facts.script.positions.span(inner))
