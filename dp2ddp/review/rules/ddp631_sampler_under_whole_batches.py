"""DDP631: a DistributedSampler under a wrapper that takes whole batches."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.helper_calls import LOADERS
from dp2ddp.review.problems import Level


class SamplerUnderWholeBatches(CheckRule):
    """The data are cut twice: by the sampler, and by the wrapper of a converted script.

    ## What it does
    Finds a `DistributedSampler` in a script that dp2ddp converted, whose loader is trained on.

    ## Why
    The wrapper (`WholeBatchDDP` and the like) takes a batch that is the same on all ranks, and each rank runs its
    rows of it. With such a sampler a rank has another batch, and still runs its rows alone: one in W samples is
    trained on, in an epoch with one W-th of the steps. Nothing fails.

    ## Safety
    Found only where the helpers are the script's one way of training on ranks, the sampler is given under no
    condition, and the file calls no collective itself.

    ## References
    https://github.com/huggingface/accelerate/issues/3520 (the same with Accelerate's loaders).
    """

    code = "DDP631"
    name = "sampler-under-whole-batches"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                from torch.utils.data import DataLoader, DistributedSampler
                from ddp_helpers import WholeBatchDDP, init_distributed
                init_distributed()
                model = WholeBatchDDP(net)
                sampler = DistributedSampler(data)
                loader = DataLoader(data, batch_size=32, sampler=sampler)
                for epoch in range(10):
                    sampler.set_epoch(epoch)
                    for x, y in loader:
                        criterion(model(x), y).backward()
            """,
            message="cut twice",
        ),
        Untouched("""
                from torch.utils.data import DataLoader
                from ddp_helpers import WholeBatchDDP, init_distributed
                init_distributed()
                model = WholeBatchDDP(net)
                loader = DataLoader(data, batch_size=32, shuffle=True)
                for epoch in range(10):
                    for x, y in loader:
                        criterion(model(x), y).backward()
        """),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                from ddp_helpers import init_distributed
                init_distributed()
                model = DistributedDataParallel(net)
                sampler = DistributedSampler(data)
                loader = DataLoader(data, batch_size=32, sampler=sampler)
                for epoch in range(10):
                    sampler.set_epoch(epoch)
                    for x, y in loader:
                        criterion(model(x), y).backward()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not script.whole_batch_wraps or script.collectives:
            return
        of_helpers = (call for call, name in script.helper_calls.items() if name in LOADERS)
        for loader in (*script.loaders, *of_helpers):
            sampler = script.certain_sampler(loader)
            if sampler is not None and any(map(script.trains_in, script.loops_over(loader.node))):
                yield Problem(
                    sampler.node,
                    "the data are cut twice, by this sampler and by the wrapper: one in W samples is trained on",
                    _advice(loader),
                )


def _advice(loader: Call) -> str:
    return "give every rank the same batches: take the sampler out" + (
        ", and let the loader shuffle" if loader.keyword("shuffle") is None else ""
    )
