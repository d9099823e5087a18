"""DDP630: a collective whose result is used, and has none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level

MOST = 4  # arguments without a name; async_op may be the fifth


class ResultOfACollective(CheckRule):
    """The collective has no result: it works in place, and returns None.

    ## What it does
    Finds `loss = dist.all_reduce(loss)` and the like, where the result is used.

    ## Why
    The collectives of torch.distributed change their tensors in place, and return None (with `async_op=True` a
    handle). So the name is None from there on: AttributeError or TypeError in the next line.

    ## Safety
    Silent with `async_op`. The functions of `torch.distributed.nn` return tensors, and are left alone.

    ## References
    https://github.com/pytorch/pytorch/issues/102435.
    """

    code = "DDP630"
    name = "result-of-a-collective"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                loss = dist.all_reduce(loss)
                print(loss.item())
            """,
            message="None",
        ),
        Flags(
            before="""
                import torch.distributed as dist
                mean = dist.all_reduce(loss) / dist.get_world_size()
            """,
            message="None",
        ),
        Untouched("""
                import torch.distributed as dist
                dist.all_reduce(loss)
                work = dist.all_reduce(other, async_op=True)
                work.wait()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        for call in script.collectives:
            if call.keyword("async_op") is None and len(call.node.args) < MOST and _is_used(script, call):
                word = (call.name or "").rpartition(".")[2]
                yield Problem(
                    call.node,
                    f"{word}() works in place and returns None, which is used here",
                    "call it on a line of its own, and go on with the tensor that it was given",
                )


def _is_used(script: DDPScript, call: Call) -> bool:
    parent = script.module.parents[call.node]
    if isinstance(parent, ast.Assign):
        return any(True for _ in script.uses_of(call.node))
    if isinstance(parent, ast.Call):  # `torch.cat(all_gather(parts, x))`
        return (script.module.name(parent.func) or "").startswith("torch.")
    return isinstance(parent, (ast.BinOp, ast.Attribute, ast.Subscript))
