"""DDP608: a collective that only one rank calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class CollectiveOnOneRank(CheckRule):
    """A collective stands where only one rank comes by: the others never meet it.

    ## What it does
    Finds `barrier`, `all_reduce` and the like under `if rank == 0:`, or behind `if rank != 0: return`, with no
    other call of it for the other ranks. In a script that dp2ddp converted, helpers that all ranks must call, as well
    (`if dist.get_rank() == 0: save_on_rank0(...)`).

    ## Why
    All ranks of a group must make the call. The one that does waits until the time-out, half an hour with NCCL.

    ## Safety
    Silent with a `group` of its own, and where another call of the same function in that function asks for a
    rank as well: `if rank != 0: barrier()` ... `if rank == 0: barrier()` is how one rank goes first.

    ## References
    https://github.com/huggingface/transformers-bloom-inference/pull/40.
    """

    code = "DDP608"
    name = "collective-on-one-rank"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                def save(model, rank):
                    if rank == 0:
                        write(model)
                        dist.barrier()
            """,
            message="only one rank",
        ),
        Untouched("""
                import torch.distributed as dist
                def save(model, rank):
                    if rank == 0:
                        write(model)
                    dist.barrier()
        """),
        Untouched("""
                import torch.distributed as dist
                def download(rank):
                    if rank != 0:
                        dist.barrier()
                    fetch()
                    if rank == 0:
                        dist.barrier()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        yield from _meetings_on_one_rank(script)
        for call in script.collectives:
            if _has_group(call) or script.ranks.one_rank_condition(call.node) is None:
                continue
            if not any(_answers(script, other, call) for other in script.collectives):
                word = (call.name or "").rpartition(".")[2]
                yield Problem(
                    call.node,
                    f"only one rank comes to this {word}(), and waits there for all the others",
                    "put it where all ranks come by, outside of the condition",
                )


def _meetings_on_one_rank(script: DDPScript) -> Iterator[Problem]:
    """Helpers of a converted script that all ranks must call, where one alone comes by."""
    for call in script.helper_meetings:
        condition = script.ranks.one_rank_condition(call.node)
        if condition is None or not script.ranks.asks_now(condition.test):
            continue
        if not any(_answers(script, other, call) for other in script.helper_meetings):
            yield Problem(
                call.node,
                f"only one rank comes to this {script.helper_calls[call]}(), and waits there for all the others",
                "take the condition away: the helper does it on rank 0 alone",
            )


def _has_group(call: Call) -> bool:
    """Whether a group of its own may be given, by name or by position: it is the third argument of most, or later."""
    first = 1 if call.name == "torch.distributed.barrier" else 3
    return call.keyword("group") is not None or len(call.node.args) >= first


def _answers(script: DDPScript, other: Call, call: Call) -> bool:
    """Whether another call may be where the other ranks meet this one."""
    return (
        other is not call
        and other.name == call.name
        and script.sites.function_of(other.node) is script.sites.function_of(call.node)
        and script.ranks.one_rank_condition(other.node) is None
        and not script.ranks.runs_on_all(other.node)
        and any(
            isinstance(parent, ast.If) and script.ranks.may_ask(parent.test)
            for parent in script.module.around(other.node)
        )
    )
