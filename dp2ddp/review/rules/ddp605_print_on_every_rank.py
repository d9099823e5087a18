"""DDP605: a line that every rank prints."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class PrintOnEveryRank(CheckRule):
    """Every rank prints the same kind of line: W lines for one, each with one rank's numbers.

    ## What it does
    Finds a `print` in a loop that every rank is certain to come by, and whose text names no rank. One finding a
    file.

    ## Why
    W lines for one, mixed with each other, and a loss that differs from line to line since each is that of one
    rank's batch.

    ## Safety
    Silent where the file (or a function of another file that sets ranks up) may replace `print`.

    ## References
    https://github.com/Lightning-AI/pytorch-lightning/issues/901,
    https://github.com/ashleve/lightning-hydra-template/issues/115.
    """

    code = "DDP605"
    name = "print-on-every-rank"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for epoch in range(10):
                    loss = train(model)
                    print("epoch", epoch, "loss", loss)
            """,
            message="every rank prints",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for epoch in range(10):
                    loss = train(model)
                    if dist.get_rank() == 0:
                        print("epoch", epoch, "loss", loss)
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for epoch in range(10):
                    loss = train(model)
                    print("rank", dist.get_rank(), "loss", loss)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if (
            not script.trains_on_ranks
            or not script.groups
            or script.sets_up_elsewhere
            or _replaces_print(script)
        ):
            return
        prints = [
            call.node
            for call in script.file.calls_of("builtins.print")
            if script.sites.loop_around(call.node) is not None
            and not any(script.ranks.may_ask(argument) for argument in call.node.args)
            and script.ranks.runs_on_all(call.node)
        ]
        if prints:
            others = f", and {len(prints) - 1} more like it" if len(prints) > 1 else ""
            yield Problem(
                prints[0],
                f"every rank prints this line{others}",
                "print on one rank: if dist.get_rank() == 0",
            )


def _replaces_print(script: DDPScript) -> bool:
    return script.names_module("builtins") or not script.names.isdisjoint({"redirect_stdout", "stdout"})
