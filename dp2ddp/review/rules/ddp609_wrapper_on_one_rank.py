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
from collections.abc import Iterator

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
        for call in script.module.calls:
            for mention in (call.node.func, *call.node.args):
                wrap = script.wrap_of(mention)
                run = (
                    next(_runs(script, call.node, mention), None) if wrap and call is not wrap.call else None
                )
                if wrap and run and _one_waits(script, wrap, call.node, run, mention):
                    yield self.problem(call.node, name=script.file.text_of(mention))


def _one_waits(script: DDPScript, wrap: Wrap, call: ast.Call, run: ast.Call, mention: ast.AST) -> bool:
    """Whether one rank alone comes to a call, and its forward has something to wait for."""
    condition = script.ranks.at(call).condition
    if condition is None or _others_run_it(script, condition, call, mention):
        return False
    if wrap.helper:
        return script.ranks.asks_now(condition.test)
    if literal(wrap.call.argument(None, "broadcast_buffers")) is False:
        return False
    has_buffers = script.file.names_module("torchvision.models") or script.file.says(HAS_BUFFERS)
    return wrap.is_torchs and has_buffers or not script.flow.is_without_gradient(run)


def _others_run_it(script: DDPScript, condition: ast.If, call: ast.Call, mention: ast.AST) -> bool:
    """Whether the other branch names the wrapper as well: the ranks meet in its forward, on two ways."""
    others = set(script.file.other_branch(condition, call))
    return any(not others.isdisjoint(script.module.around(each)) for each in script.file.alike(mention))


def _runs(script: DDPScript, call: ast.Call, wrapper: ast.expr) -> Iterator[ast.Call]:
    """A call of the wrapper itself, or where a function of the file calls the parameter that it is handed as."""
    for mention in (wrapper, *script.flow.received(wrapper)):
        match script.module.parents[mention]:
            case ast.Call(func=function) as run if function is mention:
                yield run
