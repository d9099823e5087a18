"""A collective stands where only one rank comes by: the others never meet it.

Finds `barrier`, `all_reduce` and the like under `if rank == 0:`, or behind `if rank != 0: return`, with no other call
of it for the other ranks; a rank is also what `mp.spawn` gives its function. In a script that dp2ddp converted, helpers
that all ranks must call, as well (`if dist.get_rank() == 0: save_on_rank0(...)`).

All ranks of a group must make the call. The one that does waits until the time-out, half an hour with NCCL.

Silent with a `group` of its own, and where another call of the same function in that function asks for a rank as well:
`if rank != 0: barrier()` ... `if rank == 0: barrier()` is how one rank goes first.

https://github.com/huggingface/transformers-bloom-inference/pull/40.
"""

from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected

OUTSIDE = "put it where all ranks come by, outside of the condition"
WITHOUT = "take the condition away: the helper does it on rank 0 alone"


class CollectiveOnOneRank(CheckRule):
    message = "only one rank comes to this {name}(), and waits there for all the others"
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
        for call in script.collectives:
            word = (call.name or "").rpartition(".")[2]
            if not _has_group(call) and _is_alone(script, call, script.collectives):
                yield self.problem(call.node, name=word, how=OUTSIDE)
        for call in script.helper_meetings:
            condition = script.ranks.at(call.node).condition
            asks = condition is not None and script.ranks.asks_now(condition.test)
            if asks and _is_alone(script, call, script.helper_meetings):
                yield self.problem(call.node, name=script.helper_calls[call], how=WITHOUT)


def _has_group(call: Call) -> bool:
    """Whether a group of its own may be given, by name or by position: it is the third argument of most, or later."""
    first = 1 if call.name == "torch.distributed.barrier" else 3
    return call.keyword("group") is not None or len(call.node.args) >= first


def _is_alone(script: DDPScript, call: Call, others: tuple[Call, ...]) -> bool:
    """Whether one rank comes to a call, and in its function there is none where the others may meet it."""
    return script.ranks.at(call.node).are_one and not any(
        other.name == call.name
        and script.file.function_of(other.node) is script.file.function_of(call.node)
        and script.ranks.at(other.node).are_some
        for other in others
    )
