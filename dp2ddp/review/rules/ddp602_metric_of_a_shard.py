"""An accuracy or a loss is counted over one rank's share of the data, and never brought together.

Finds an evaluation loop over a loader with a `DistributedSampler` that adds numbers up, in a file that neither reduces
nor gathers anything.

Each rank sees 1 / W of the samples, so what rank 0 prints is the metric of its own share; and the sampler repeats
samples until all shares are equally long, so that even the average of all ranks is not the metric of the data set.

Silent where any name of the file has `reduce`, `gather`, `metric` or `broadcast` in it, and where a framework owns the
loop.

https://github.com/pytorch/pytorch/issues/25162, https://github.com/Lightning-AI/pytorch-lightning/issues/4732.
"""

import ast

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected, inside


class MetricOfAShard(CheckRule):
    message = "counts this rank's share of the data only, and nothing brings the ranks' numbers together"
    advice = "all_reduce() sums and counts before dividing; or evaluate without a DistributedSampler"
    examples = corrected("""
        # share of the data
          from torch.utils.data import DistributedSampler
          model = DistributedDataParallel(model)
          loader = DataLoader(test_set, batch_size=32, sampler=DistributedSampler(test_set, shuffle=False))
          correct = torch.zeros(1)
          with torch.no_grad():
              for x, y in loader:
                  correct += (model(x).argmax(1) == y).sum().item()
        + dist.all_reduce(correct)
    """)

    def find(self, script: DDPScript) -> Found:
        if script.has_framework or script.may_reduce:
            return
        loops = (loop for loader in script.loaders if loader.sampler for loop in loader.loops)
        for loop in loops:
            added = next(filter(_adds_up, ast.walk(loop.node)), None)
            # one that trains as well runs over another loader to evaluate
            if added is not None and not loop.trains and script.flow.is_without_gradient(added):
                yield self.problem(added)
                return


def _adds_up(node: ast.AST) -> bool:
    """`correct += hits`, and not `step += 1` or a time."""
    if not isinstance(node, ast.AugAssign) or isinstance(node.value, ast.Constant):
        return False
    return not any("time" in inner.id for inner in inside(node, ast.Name))
