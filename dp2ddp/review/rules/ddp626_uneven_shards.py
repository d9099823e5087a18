"""Ranks get shares of different lengths, and the longest waits for the others.

Finds a loop over `x[rank::world_size]` that trains, in a file that wraps a model, without `join` and without anything
that evens the shares.

Unless the length divides by W, some ranks have one sample more, at some batch sizes one batch more: in it they wait for
ranks that are done already.

Silent where the file divides by the number of ranks, pads, cuts, or uses `join`.

https://github.com/pytorch/pytorch/issues/38174, https://github.com/microsoft/PyMarlin/issues/80.
"""

import ast
import re

from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, literal

EVENS = re.compile(r"^Join$|ceil|pad|drop|cycle|infinite|max_steps|total_size")


class UnevenShards(CheckWarning):
    message = "the ranks' shares are not equally long, so one may wait for ranks that are done"
    advice = "cut or pad to a multiple of the number of ranks, or train under model.join()"
    examples = corrected("""
        # not equally long
          model = DistributedDataParallel(net)
        - files = files[rank::world_size]
        + files = files[: len(files) // world_size * world_size][rank::world_size]
          for name in files:
              loss = model(load(name)).mean()
              loss.backward()
    """)

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks or script.file.says(EVENS) or _evens(script):
            return
        for node in script.module.all(ast.Subscript):
            match node.slice:
                case ast.Slice(lower=ast.expr() as first, upper=None, step=ast.expr()) as part:
                    loops = script.flow.loops_over(node) if script.ranks.is_rank(first) else ()
                    if any(script.flow.trains_in(loop) for loop, _, _ in loops):
                        yield self.problem(part)


def _evens(script: DDPScript) -> bool:
    """`model.join()`, a number that is cut (`//`), a loop without an end."""
    operations = script.module.nodes(ast.BinOp, ast.AugAssign)
    return (
        any(call.method == "join" and not call.node.args for call in script.module.calls)
        or any(isinstance(getattr(operation, "op", None), ast.FloorDiv) for operation in operations)
        or any(literal(loop.test) for loop in script.module.all(ast.While))
    )
