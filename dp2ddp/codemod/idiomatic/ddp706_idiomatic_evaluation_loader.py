"""DDP706: loaders that do not train."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.idiomatic.loading import read_loaders
from dp2ddp.codemod.rule import Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class EvaluationLoader(Rule):
    """Let every rank evaluate on all samples.

    ## What it does
    A loader that does not train stays as it is: a note.

    ## Why
    A DistributedSampler pads the last batch with samples that were there before, and gives each rank a metric of its
    own; on rank 0 alone, the others would wait (a model with BatchNorm even for each forward, which sends buffers),
    until NCCL gives up. So each rank goes through all samples: the figures stay what they were, and all ranks decide
    alike (best epoch, plateau, early stop).

    ## Safety
    It takes the time that one GPU takes for it. Where that is too long, share it out by hand and add up counts with
    `dist.all_reduce`; or take the exact style, which does.

    ## References
    docs/idiomatic.md#evaluation.
    """

    code = "DDP706"
    name = "idiomatic-evaluation-loader"
    nodes = ("Call",)
    examples = (
        Notes(
            before="""
                import torch
                from torch.utils.data import DataLoader
                net = torch.nn.DataParallel(net)
                loader = DataLoader(data, batch_size=64)
                for x, y in loader:
                    correct += (net(x).argmax(1) == y).sum()
            """,
            message="every rank",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for loading in read_loaders(facts):
            if loading.script is not facts.script or loading.trains:
                continue
            if loading.others or not loading.odd:
                yield Note(
                    loading.call.node,
                    "every rank evaluates on all samples: the same figures as before, in the time that one GPU takes",
                )
            else:
                yield Hazard(
                    loading.call.node,
                    f"the loader is used in a way that is not followed ({facts.program.where(loading.odd[0])})",
                    "take the exact style",
                )
