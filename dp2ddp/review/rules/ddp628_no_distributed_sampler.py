"""DDP628: ranks that all train on all of the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

SHARES = re.compile(r"[sS]ampler|Iterable|webdataset|dali|shard|prepare$|split_dataset", re.IGNORECASE)


class NoDistributedSampler(CheckRule):
    """Every rank trains on all of the data.

    ## What it does
    Finds a shuffling `DataLoader` without a sampler whose loop trains, in a file that makes a process group and
    wraps a model, and names no sampler at all.

    ## Why
    An epoch has W times as many steps as it should, each on W batches of the same data set. The ranks' batches
    are even the same ones where all have the same seed, and then W GPUs do the work of one.

    ## Safety
    Silent where anything is called a sampler, the data set is iterable or asks for a rank, each rank seeds itself
    or takes its rows of a batch, or a framework owns the loop.

    ## References
    https://github.com/openvla/openvla/issues/125, https://github.com/innnky/so-vits-svc/issues/70.
    """

    code = "DDP628"
    name = "no-distributed-sampler"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.utils.data import DataLoader
                model = DistributedDataParallel(net)
                loader = DataLoader(data, batch_size=32, shuffle=True)
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()
            """,
            message="all of the data",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.utils.data import DataLoader, DistributedSampler
                model = DistributedDataParallel(net)
                loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.utils.data import DataLoader
                model = DistributedDataParallel(net)
                loader = DataLoader(Shard(files, dist.get_rank()), batch_size=32, shuffle=True)
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not script.trains_on_ranks or not script.groups or script.has_word(SHARES):
            return
        if any(_is_seeded_by_rank(script, call) for call in script.module.calls):
            return
        for loader in script.loaders:
            data = loader.argument(0, "dataset")
            if (
                literal(loader.argument(2, "shuffle")) is not True
                or data is None
                or script.ranks.may_ask(data)
            ):
                continue
            loops = list(script.loops_over(loader.node))
            if any(map(script.trains_in, loops)) and not any(_cuts_by_rank(script, loop) for loop in loops):
                yield Problem(
                    loader.node,
                    "each rank loads all of the data: an epoch takes as long as on one GPU",
                    "give the loader a DistributedSampler, and leave shuffle to it",
                )


def _is_seeded_by_rank(script: DDPScript, call: Call) -> bool:
    """`torch.manual_seed(seed + rank)`: ranks draw different batches on purpose."""
    word = (call.name or call.method or "").rpartition(".")[2]
    return "seed" in word and any(map(script.ranks.may_ask, call.node.args))


def _cuts_by_rank(script: DDPScript, loop: ast.For) -> bool:
    """`x.chunk(world)[rank]`."""
    return any(
        isinstance(node, ast.Subscript) and script.ranks.may_ask(node.slice) for node in ast.walk(loop)
    )
