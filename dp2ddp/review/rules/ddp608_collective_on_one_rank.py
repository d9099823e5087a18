"""A collective stands where only one rank comes by: the others never meet it.

Finds `barrier`, `all_reduce` and the like, and functions of the file that call one, under `if rank == 0:`, or behind
`if rank != 0: return`, with no other call of it for the other ranks; a rank is also what `mp.spawn` gives its function.
In a script that dp2ddp converted, helpers that all ranks must call, as well (`if dist.get_rank() == 0:
save_on_rank0(...)`).

All ranks of a group must make the call. The one that does waits until the time-out, half an hour with NCCL.

Silent with a `group` of its own, and where another call of the same function in that function asks for a rank as well:
`if rank != 0: barrier()` ... `if rank == 0: barrier()` is how one rank goes first.

https://github.com/huggingface/transformers-bloom-inference/pull/40.
"""

from collections.abc import Iterator
from itertools import filterfalse

from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected

OUTSIDE = "put it where all ranks come by, outside of the condition"
WITHOUT = "take the condition away: the helper does it on rank 0 alone"


class CollectiveOnOneRank(CheckRule):
    message = "only one rank comes to {what}, and waits there for all the others"
    advice = "{how}"
    examples = corrected("""
        # only one rank
          def save(model, rank):
              if rank == 0:
                  write(model)
        -         dist.barrier()
        +     dist.barrier()
    """)

    def find(self, script: DDPScript) -> Found:
        meetings = (*filterfalse(_has_group, script.collectives), *script.helper_meetings)
        for call in script.module.calls if meetings else ():
            where = script.ranks.at(call.node)
            if where.condition is None or where.place is not call.node:
                continue
            elsewhere = {met.name for met in _met_by_others(script, call, meetings)}
            met = next((each for each in _met_by(script, call, meetings) if each.name not in elsewhere), None)
            helper = script.helper_calls.get(met, "") if met else ""
            if met and (not helper or script.ranks.asks_now(where.condition.test)):
                name = f"{(met.name or '').rpartition('.')[2]}()"
                what = (
                    f"this {name}"
                    if met is call
                    else f"the {name} in {script.file.text_of(call.node.func)}()"
                )
                yield self.problem(call.node, what=what, how=WITHOUT if helper else OUTSIDE)


def _met_by(script: DDPScript, call: Call, meetings: tuple[Call, ...]) -> Iterator[Call]:
    """What all ranks must call together: a call itself, and what the functions of the file call that it runs."""
    bodies = set(script.flow.runs(call.node)) if script.file.callee(call.node) else ()
    for each in meetings:
        where = script.ranks.at(each.node)
        asks = where.are_some or where.place is each.node
        if each is call or script.file.function_of(each.node) in bodies and not asks:
            yield each


def _met_by_others(script: DDPScript, call: Call, meetings: tuple[Call, ...]) -> Iterator[Call]:
    """The same of calls in its function that ask for a rank as well: that is how one rank goes first."""
    for other in script.module.calls:
        is_beside = script.file.function_of(other.node) is script.file.function_of(call.node)
        if is_beside and script.ranks.at(other.node).are_some:
            yield from _met_by(script, other, meetings)


def _has_group(call: Call) -> bool:
    """Whether a group of its own may be given, by name or by position: it is the third argument of most, or later."""
    first = 1 if call.name == "torch.distributed.barrier" else 3
    return call.keyword("group") is not None or len(call.node.args) >= first
