"""Each rank steps ReduceLROnPlateau with the loss of its own share of the data.

Finds `ReduceLROnPlateau.step(x)` where `x` comes from a loop over a loader with a `DistributedSampler`, in a file that
neither reduces nor gathers.

The losses of two ranks differ, and one day so do their decisions: one rank lowers its learning rate, the other does
not. Gradients are the same still, so the weights of the ranks drift apart, and nothing says so.

Silent where any name of the file has `reduce`, `gather`, `metric` or `broadcast` in it, ReduceLROnPlateau itself aside.

https://github.com/rmchurch/disruptcnn/issues/3, https://github.com/lucidrains/DALLE-pytorch/issues/268.
"""

import ast

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected, inside


class LocalDecision(CheckRule):
    message = "each rank decides by the loss of its own share: rates and weights drift apart"
    advice = "all_reduce() the loss first, so that all ranks decide alike"
    examples = corrected("""
        # drift apart
          from torch.optim.lr_scheduler import ReduceLROnPlateau
          from torch.utils.data import DistributedSampler
          model = DistributedDataParallel(net)
          scheduler = ReduceLROnPlateau(optimizer)
          loader = DataLoader(data, sampler=DistributedSampler(data))
          for epoch in range(10):
              total = torch.zeros(1)
              for x, y in loader:
                  total += step(model, x, y).item()
        +     dist.all_reduce(total)
              scheduler.step(total)
    """)

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks or script.may_reduce:
            return
        for maker in script.file.calls_of("torch.optim.lr_scheduler.ReduceLROnPlateau"):
            for use in script.flow.uses(maker.node):
                match list(script.module.around(use))[:2]:
                    case [ast.Attribute(attr="step"), ast.Call(args=[value, *_]) as call] if _is_of_a_shard(
                        script, value
                    ):
                        yield self.problem(call)


def _is_of_a_shard(script: DDPScript, value: ast.expr) -> bool:
    """Whether a name in it, or in what that is set to, is added up in a loop over a DistributedSampler's data."""
    behind = (each for name in inside(value, ast.Name) for each in script.file.values(name) if each)
    words = {node.id for each in (value, *behind) for node in inside(each, ast.Name)}
    loops = [loop.node for loader in script.loaders if loader.sampler for loop in loader.loops]
    return any(
        isinstance(node.target, ast.Name) and node.target.id in words
        for loop in loops
        if script.file.function_of(loop) is script.file.function_of(value)
        for node in inside(loop, ast.AugAssign)
    )
