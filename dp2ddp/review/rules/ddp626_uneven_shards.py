"""DDP626: shares of the data that are not equally long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

EVENS = re.compile(r"^Join$|ceil|pad|drop|cycle|infinite|max_steps|total_size")


class UnevenShards(CheckRule):
    """Ranks get shares of different lengths, and the longest waits for the others.

    ## What it does
    Finds a loop over `x[rank::world_size]` that trains, in a file that wraps a model, without `join` and without
    anything that evens the shares.

    ## Why
    Unless the length divides by W, some ranks have one sample more, at some batch sizes one batch more: in it
    they wait for ranks that are done already.

    ## Safety
    Silent where the file divides by the number of ranks, pads, cuts, or uses `join`.

    ## References
    https://github.com/pytorch/pytorch/issues/38174, https://github.com/microsoft/PyMarlin/issues/80.
    """

    code = "DDP626"
    name = "uneven-shards"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                files = files[rank::world_size]
                for name in files:
                    loss = model(load(name)).mean()
                    loss.backward()
            """,
            message="not equally long",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                files = files[: len(files) // world_size * world_size][rank::world_size]
                for name in files:
                    loss = model(load(name)).mean()
                    loss.backward()
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                files = files[rank::world_size]
                with model.join():
                    for name in files:
                        loss = model(load(name)).mean()
                        loss.backward()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not script.trains_on_ranks or script.has_word(EVENS) or _evens(script):
            return
        for node in script.module.nodes(ast.Subscript):
            match node:
                case ast.Subscript(
                    slice=ast.Slice(lower=ast.expr() as first, upper=None, step=ast.expr()) as part
                ):
                    if script.ranks.is_rank(first) and _is_trained_on(script, node):
                        yield Problem(
                            part,
                            "the ranks' shares are not equally long, so one may wait for ranks that are done",
                            "cut or pad to a multiple of the number of ranks, or train under model.join()",
                        )


def _evens(script: DDPScript) -> bool:
    """`model.join()`, a number that is cut (`//`), a loop without an end."""
    if any(call.method == "join" and not call.node.args for call in script.module.calls):
        return True
    operations = script.module.nodes(ast.BinOp, ast.AugAssign)
    if any(isinstance(getattr(operation, "op", None), ast.FloorDiv) for operation in operations):
        return True
    return any(isinstance(loop, ast.While) and literal(loop.test) for loop in script.module.nodes(ast.While))


def _is_trained_on(script: DDPScript, values: ast.AST, steps: int = 4) -> bool:
    """Whether a loop that trains runs through values, or through what is made of them under other names."""
    loop = script.loop_over(values)
    if loop is not None or steps == 0:
        return loop is not None and script.trains_in(loop)
    whole = values
    while isinstance(parent := script.module.parents[whole], (ast.Call, ast.keyword)):
        whole = parent
    return any(_is_trained_on(script, use, steps - 1) for use in script.uses_of(whole))
