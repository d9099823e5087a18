"""An accuracy or a loss is counted over one rank's share of the data, and never brought together.

Finds an evaluation loop over a loader with a `DistributedSampler` that adds numbers up, which are followed through
names and functions of the file, and nowhere reduced nor gathered.

Each rank sees 1 / W of the samples, so what rank 0 prints is the metric of its own share; and the sampler repeats
samples until all shares are equally long, so that even the average of all ranks is not the metric of the data set.

Silent where what gets them has `reduce`, `gather`, `metric`, `broadcast` or the like in its name, or is of another
file, and where a framework owns the loop.

https://github.com/pytorch/pytorch/issues/25162, https://github.com/Lightning-AI/pytorch-lightning/issues/4732.
"""

import ast

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected, inside
from dp2ddp.review.own_numbers import OwnNumbers


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
        loops = (loop for loader in script.loaders for loop in loader.shares)
        for loop in loops if not script.has_framework else ():
            numbers = OwnNumbers(script, loop)
            added = (each for each in inside(loop.node, ast.AugAssign) if each.value in numbers.nodes)
            first = next((each for each in added if script.flow.is_without_gradient(each)), None)
            # one that trains as well runs over another loader to evaluate
            if first is not None and not loop.trains and not numbers.are_joined:
                yield self.problem(first)
                return
