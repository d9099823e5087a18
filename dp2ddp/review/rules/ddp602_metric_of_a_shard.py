"""DDP602: a metric that counts one rank's share of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class MetricOfAShard(CheckRule):
    """An accuracy or a loss is counted over one rank's share of the data, and never brought together.

    ## What it does
    Finds an evaluation loop over a loader with a `DistributedSampler` that adds numbers up, in a file that
    neither reduces nor gathers anything.

    ## Why
    Each rank sees 1 / W of the samples, so what rank 0 prints is the metric of its own share; and the sampler
    repeats samples until all shares are equally long, so that even the average of all ranks is not the metric
    of the data set.

    ## Safety
    Silent where any name of the file has `reduce`, `gather`, `metric` or `broadcast` in it, and where a
    framework owns the loop.

    ## References
    https://github.com/pytorch/pytorch/issues/25162,
    https://github.com/Lightning-AI/pytorch-lightning/issues/4732.
    """

    code = "DDP602"
    name = "metric-of-a-shard"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                import torch
                from torch.utils.data import DataLoader, DistributedSampler
                model = DistributedDataParallel(model)
                loader = DataLoader(test_set, batch_size=32, sampler=DistributedSampler(test_set, shuffle=False))
                correct = 0
                with torch.no_grad():
                    for x, y in loader:
                        correct += (model(x).argmax(1) == y).sum().item()
                print(correct / len(test_set))
            """,
            message="share of the data",
        ),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                import torch
                import torch.distributed as dist
                from torch.utils.data import DataLoader, DistributedSampler
                model = DistributedDataParallel(model)
                loader = DataLoader(test_set, batch_size=32, sampler=DistributedSampler(test_set, shuffle=False))
                correct = torch.zeros(1)
                with torch.no_grad():
                    for x, y in loader:
                        correct += (model(x).argmax(1) == y).sum().item()
                dist.all_reduce(correct)
        """),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                import torch
                from torch.utils.data import DataLoader
                model = DistributedDataParallel(model)
                loader = DataLoader(test_set, batch_size=32)
                correct = 0
                with torch.no_grad():
                    for x, y in loader:
                        correct += (model(x).argmax(1) == y).sum().item()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if script.has_framework or script.may_reduce:
            return
        for loader in script.sampler_of:
            for loop in script.loops_over(loader):
                if script.trains_in(loop):  # it also runs over another loader, to evaluate
                    continue
                added = next(filter(_adds_up, ast.walk(loop)), None)
                if added is not None and script.is_without_gradient(added):
                    yield Problem(
                        added,
                        "counts this rank's share of the data only, and nothing brings the ranks' numbers together",
                        "all_reduce() sums and counts before dividing; or evaluate without a DistributedSampler",
                    )
                    return


def _adds_up(node: ast.AST) -> bool:
    """`correct += hits`, and not `step += 1` or a time."""
    if not isinstance(node, ast.AugAssign) or isinstance(node.value, ast.Constant):
        return False
    words = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return not any("time" in word for word in words)
