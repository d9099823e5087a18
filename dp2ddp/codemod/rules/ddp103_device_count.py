"""Count the ranks where the script counts devices.

`torch.cuda.device_count()` becomes `count_ranks()`, unless it is asked whether there is any device.

The number that DataParallel splits a batch by is the number of ranks, whatever a rank sees of the devices.

Whether there is any GPU (`device_count() >= 1`, `if not device_count():`) is asked as before.

docs/semantics.md#device-count.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.mentions import handed_on
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff, rename

# `device_count() > 0` and the like ask whether there is any: that needs no change.
ASKS_FOR_ANY = {(ast.Gt, 0), (ast.GtE, 1), (ast.NotEq, 0), (ast.Eq, 0), (ast.Lt, 1), (ast.LtE, 0)}


BECAUSE = "the number of devices is the number of ranks"


class DeviceCount(Rule):
    nodes = ("Attribute", "Name")
    examples = (
        diff("""
              import torch
            - if torch.cuda.device_count() > 1:
            -     print(f"{torch.cuda.device_count()} GPUs")
            + if count_ranks() > 1:
            +     print(f"{count_ranks()} GPUs")
                  net = torch.nn.DataParallel(net)
            - workers = build(count=torch.cuda.device_count)
            + workers = build(count=count_ranks)
        """),
        Untouched("""
            import torch
            assert torch.cuda.device_count() >= 1, "needs a GPU"
            device = "cuda" if torch.cuda.device_count() else "cpu"
            net = torch.nn.DataParallel(net)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            is_count = does(call.name) is Does.COUNT_DEVICES
            if is_count and not asks_for_any(module, call.node):
                yield rename(call.node.func, "count_ranks", BECAUSE)
        for node, _ in handed_on(module, Does.COUNT_DEVICES):
            yield rename(node, "count_ranks", BECAUSE)


def asks_for_any(module: Module, node: ast.AST) -> bool:
    """Whether a number is asked only whether it is zero."""
    match module.parents[node]:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=value)]) if left is node:
            return (type(op), value) in ASKS_FOR_ANY
        case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
            return True
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
            return test is node
    return False
