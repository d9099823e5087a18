"""One rank alone runs the wrapped model, and waits for the others.

Finds a call of the wrapper itself under `if rank == 0:`, or of a function of the file that calls what it is given,
where gradients are on or the file's models have buffers. In a script that dp2ddp converted, of its wrapper, always:
that joins the outputs of all ranks.

The wrapper's forward sends rank 0's buffers to all ranks, in evaluation, too, and its backward sums gradients. So the
rank waits for ranks that do something else: it hangs, or meets another collective of theirs.

Silent with `broadcast_buffers=False`, under `no_grad` in files that name no layer with buffers, and where the other
branch runs the wrapper, too.

https://github.com/dmlc/dgl/pull/4385, https://github.com/pytorch/pytorch/issues/89716.
"""

import ast
import re

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, Wrap, corrected, literal

HAS_BUFFERS = re.compile(r"BatchNorm|resnet|densenet|mobilenet|efficientnet|register_buffer", re.IGNORECASE)


class WrapperOnOneRank(CheckRule):
    message = "one rank alone runs the wrapper `{name}`, whose forward asks all ranks for their part"
    advice = "let all ranks come by, or run the model itself: {name}.module"
    examples = corrected("""
        # model.module
          model = DistributedDataParallel(net)
          for epoch in range(3):
              train(model)
              if dist.get_rank() == 0:
        -         out = model(x)
        +         out = model.module(x)
    """)

    def find(self, script: DDPScript) -> Found:
        for wrap in script.all_wraps:
            for mention in script.flow.not_handed(wrap.mentions):
                call, where = script.file.part_of(mention), script.ranks.at(mention)
                runs = (
                    run for each in (mention, *script.flow.received(mention)) if (run := _run(script, each))
                )
                run = next(runs, None) if isinstance(call, ast.Call) else None
                if call and run and where.condition and _waits(script, wrap, where.condition, run):
                    others = set(script.file.other_branch(where.condition, where.place or mention))
                    same = script.file.mentions(script.file.variable(mention), ast.Load)
                    if all(others.isdisjoint(script.module.around(each)) for each in same):
                        yield self.problem(call, name=script.file.text_of(mention))


def _run(script: DDPScript, wrapper: ast.AST) -> ast.Call | None:
    """`model(x)`."""
    call = script.module.parents[wrapper]
    return call if isinstance(call, ast.Call) and call.func is wrapper else None


def _waits(script: DDPScript, wrap: Wrap, condition: ast.If, run: ast.Call) -> bool:
    """Whether a forward of one rank has something to wait for."""
    if wrap.helper:
        return script.ranks.asks_now(condition.test)
    if literal(wrap.call.argument(None, "broadcast_buffers")) is False:
        return False
    has_buffers = script.file.names_module("torchvision.models") or script.file.says(HAS_BUFFERS)
    return wrap.is_torchs and has_buffers or not script.flow.is_without_gradient(run)
