"""DDP710: what DDP makes other numbers of, and a person must look at."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.idiomatic.deciding_figures import deciding_figures, shown_figures, swallowing
from dp2ddp.codemod.idiomatic.draws import unseeded_orders
from dp2ddp.codemod.idiomatic.losses import Mean, losses_of, sums
from dp2ddp.codemod.idiomatic.models import wraps_of
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, remark
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched
from dp2ddp.codemod.rules.ddp506_own_clock import OwnClock

SUM = "a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before"
PAIRS = "a product of matrices: where rows are compared with each other, a rank has 1/W of them (all_gather them?)"
UNSEEDED = "without a seed each rank draws another order, and may test on what others train: set one"
FIGURES = "rank 0's figures, of its share of the samples; all_reduce sums and counts to show those of all"
DECIDING = (
    "each rank's own figure: if more than a line hangs on it, dist.all_reduce it, or ranks decide differently"
)
SWALLOWED = "a rank that swallows an error here leaves the others without its gradients: let it raise"
CLOCK = "each rank's own clock, or process: take rank 0's (dist.broadcast_object_list)"


class Remarks(IdiomaticRule):
    """Say where numbers are a rank's own.

    ## What it does
    Puts a comment above a loss that is a sum (DDP averages gradients over the ranks: they are 1 / W of what they were)
    or that compares rows, above training figures that are shown or decide something, above random splits without a
    seed, errors that are swallowed in a step, and clocks that name files.

    ## Why
    What to do depends on what the owner wants: no code is right for all.

    ## Safety
    Nothing is changed.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP710"
    name = "idiomatic-remarks"
    nodes = ("BaseStatement",)
    examples = (
        Rewrites(
            before="""
                from torch import nn
                net = nn.DataParallel(net)
                criterion = nn.CrossEntropyLoss(reduction="sum")
            """,
            after="""
                from torch import nn
                net = nn.DataParallel(net)
                # dp2ddp: a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before
                criterion = nn.CrossEntropyLoss(reduction="sum")
            """,
        ),
        Untouched("from torch import nn\ncriterion = nn.CrossEntropyLoss()"),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        if not wraps_of(module.program):
            return
        for statement in sums(module):
            yield remark(module, statement, SUM)
        for call in unseeded_orders(module):
            yield remark(module, call.node, UNSEEDED)
        for home, statement, kind in losses_of(module.program):
            if home is module and kind is Mean.OF_PAIRS:
                yield remark(module, statement, PAIRS)
        for statement in shown_figures(module):
            yield remark(module, statement, FIGURES)
        for statement in deciding_figures(module):
            yield remark(module, statement, DECIDING)
        for statement in swallowing(module):
            yield remark(module, statement, SWALLOWED)
        for finding in OwnClock().look(module):
            node = finding.edit.node if isinstance(finding, Change) else finding.node
            yield remark(module, node, CLOCK)
