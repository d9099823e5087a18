"""DDP612: a decision that each rank makes from its own numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class LocalDecision(CheckRule):
    """Each rank steps ReduceLROnPlateau with the loss of its own share of the data.

    ## What it does
    Finds `ReduceLROnPlateau.step(x)` where `x` comes from a loop over a loader with a `DistributedSampler`, in
    a file that neither reduces nor gathers.

    ## Why
    The losses of two ranks differ, and one day so do their decisions: one rank lowers its learning rate, the
    other does not. Gradients are the same still, so the weights of the ranks drift apart, and nothing says so.

    ## Safety
    Silent where any name of the file has `reduce`, `gather`, `metric` or `broadcast` in it, ReduceLROnPlateau
    itself aside.

    ## References
    https://github.com/rmchurch/disruptcnn/issues/3, https://github.com/lucidrains/DALLE-pytorch/issues/268.
    """

    code = "DDP612"
    name = "local-decision"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.optim.lr_scheduler import ReduceLROnPlateau
                from torch.utils.data import DataLoader, DistributedSampler
                model = DistributedDataParallel(net)
                scheduler = ReduceLROnPlateau(optimizer)
                loader = DataLoader(data, sampler=DistributedSampler(data))
                for epoch in range(10):
                    total = 0.0
                    for x, y in loader:
                        total += step(model, x, y).item()
                    scheduler.step(total)
            """,
            message="drift apart",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.optim.lr_scheduler import ReduceLROnPlateau
                from torch.utils.data import DataLoader, DistributedSampler
                model = DistributedDataParallel(net)
                scheduler = ReduceLROnPlateau(optimizer)
                loader = DataLoader(data, sampler=DistributedSampler(data))
                for epoch in range(10):
                    total = torch.zeros(1)
                    for x, y in loader:
                        total += step(model, x, y).item()
                    dist.all_reduce(total)
                    scheduler.step(total)
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.optim.lr_scheduler import ReduceLROnPlateau
                from torch.utils.data import DataLoader, DistributedSampler
                model = DistributedDataParallel(net)
                scheduler = ReduceLROnPlateau(optimizer)
                loader = DataLoader(data, sampler=DistributedSampler(data))
                valid_loader = DataLoader(valid)
                for epoch in range(10):
                    total = 0.0
                    for x, y in valid_loader:
                        total += loss(model, x, y).item()
                    scheduler.step(total)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not script.trains_on_ranks or script.may_reduce:
            return
        for maker in script.file.calls_of("torch.optim.lr_scheduler.ReduceLROnPlateau"):
            for use in script.uses_of(maker.node):
                step = list(script.module.around(use))[:2]
                match step:
                    case [ast.Attribute(attr="step"), ast.Call(args=[value, *_]) as call]:
                        if _is_of_a_shard(script, value):
                            yield Problem(
                                call,
                                "each rank decides by the loss of its own share: rates and weights drift apart",
                                "all_reduce() the loss first, so that all ranks decide alike",
                            )


def _is_of_a_shard(script: DDPScript, value: ast.expr) -> bool:
    """Whether a name is added up in a loop over a loader that has a DistributedSampler."""
    words = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    words |= {
        node.id
        for word in list(words)
        for assigned in script.module.nodes(ast.Assign)
        if isinstance(assigned, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == word for target in assigned.targets)
        for node in ast.walk(assigned.value)
        if isinstance(node, ast.Name)
    }
    return any(
        isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in words
        for loader in script.sampler_of
        for loop in script.loops_over(loader)
        if script.sites.function_of(loop) is script.sites.function_of(value)
        for node in ast.walk(loop)
    )
