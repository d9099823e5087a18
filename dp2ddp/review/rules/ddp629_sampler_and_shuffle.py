"""DDP629: a loader with a sampler that is to shuffle, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Rewrites, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level


class SamplerAndShuffle(CheckRule):
    """A loader that has a sampler cannot shuffle as well.

    ## What it does
    Finds `DataLoader(..., shuffle=True, sampler=...)` with a `DistributedSampler`.

    ## Why
    ValueError: sampler option is mutually exclusive with shuffle.

    ## Safety
    `--fix` takes `shuffle=True` out where a sampler that shuffles is made in the same call, or under no condition
    above it: the script did not run before. Elsewhere its name may be None.

    ## References
    https://github.com/NVIDIA/tacotron2/issues/168, https://github.com/ultralytics/yolov3/issues/231.
    """

    code = "DDP629"
    name = "sampler-and-shuffle"
    level = Level.ERROR
    fixes = True
    examples = (
        Rewrites(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                loader = DataLoader(data, batch_size=8, shuffle=True, sampler=DistributedSampler(data))
            """,
            after="""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            """,
        ),
        Rewrites(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                sampler = DistributedSampler(data)
                loader = DataLoader(data, batch_size=8, shuffle=True, sampler=sampler)
            """,
            after="""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                sampler = DistributedSampler(data)
                loader = DataLoader(data, batch_size=8, sampler=sampler)
            """,
        ),
        Flags(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                sampler = DistributedSampler(data) if distributed else None
                loader = DataLoader(data, batch_size=8, shuffle=True, sampler=sampler)
            """,
            message="ValueError",
        ),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                sampler = DistributedSampler(data) if distributed else None
                loader = DataLoader(data, batch_size=8, shuffle=sampler is None, sampler=sampler)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        for loader in script.loaders:
            shuffle, sampler = loader.argument(2, "shuffle"), script.sampler_of.get(loader.node)
            if shuffle is None or sampler is None or literal(shuffle) is not True:
                continue
            keyword = loader.keyword("shuffle")
            fix = (
                (DropArgument(keyword, loader.node, "the sampler shuffles"),)
                if keyword and _never_ran(script, loader)
                else ()
            )
            yield Problem(
                keyword or shuffle,
                "ValueError: the sampler decides the order, and the loader is to shuffle as well",
                "leave it to the sampler: take shuffle=True out, or shuffle=(sampler is None) where there may be none",
                fix,
            )


def _never_ran(script: DDPScript, loader: Call) -> bool:
    """Whether the loader always gets a sampler that shuffles, and nothing catches the error that it then raises."""
    sampler = script.certain_sampler(loader)
    is_tried = any(isinstance(parent, ast.Try) for parent in script.module.around(loader.node))
    return sampler is not None and sampler.argument(3, "shuffle") is None and not is_tried
