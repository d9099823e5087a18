"""DDP710: losses that are no mean over rows."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.idiomatic.losses import LossKind, read_losses, read_replicas
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class LossOfRows(Rule):
    """Say where the mean of the ranks' losses is not the loss of the batch.

    ## What it does
    A hazard where a loss is a sum over rows, where it compares rows with each other, and where it cannot be seen what
    it is. A loss of torch that is a mean over rows, a loss that the model computes itself (DataParallel's script takes
    the mean over the replicas), and sums and multiples of these are well. A mean over what counts (class weights,
    `ignore_index`) is converted, and the report says that it is a mean of means.

    ## Why
    DistributedDataParallel averages gradients over the ranks: of a sum that makes 1/W, of a comparison of rows one with
    fewer rows.

    ## Safety
    What is not known is a hazard. If you know that it is a mean over rows, accept it.

    ## References
    docs/semantics.md#gradient-scale; docs/causes.md, mean-for-sum, pairs-across-ranks; docs/idiomatic.md.
    """

    code = "DDP710"
    name = "idiomatic-loss"
    nodes = ("BinaryOperation", "Call")
    examples = (
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                criterion = torch.nn.MSELoss(reduction="sum")
                for x, y in loader:
                    loss = criterion(net(x), y)
                    loss.backward()
            """,
            message="a sum over rows",
        ),
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                for x, y in loader:
                    z = net(x)
                    loss = (z @ z.t() - y).pow(2).mean()
                    loss.backward()
            """,
            message="compared with each other",
        ),
        Untouched("""
            import torch
            net = torch.nn.DataParallel(net)
            criterion = torch.nn.CrossEntropyLoss().cuda()
            for x, y in loader:
                loss = criterion(net(x), y) + 0.1 * (net.module.scale - 1).pow(2).mean()
                loss.backward()
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        for node in read_replicas(facts):
            if facts.modules.home.get(node) is facts.script:
                text = facts.script.text_of(node)
                yield Hazard(
                    node,
                    f"`{text}` has a number of each replica under DataParallel, and is taken apart; a rank has one",
                    "take its mean, or the exact style",
                )
        for loss in read_losses(facts):
            if (
                loss.kind not in (LossKind.MEAN, LossKind.WEIGHTED)
                and facts.modules.home.get(loss.node) is facts.script
            ):
                text = " ".join(facts.script.text_of(loss.node).split())
                shown = text if len(text) <= 50 else text[:47] + "..."
                yield Hazard(
                    loss.node,
                    f"of the loss `{shown}`, {loss.kind.value}",
                    "make it a mean over rows, or take the exact style; accept this if it is such a mean",
                )
