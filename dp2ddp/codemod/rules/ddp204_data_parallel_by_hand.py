"""DDP204: DataParallel's parts, called by the script."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import PARTS, calls_by_hand
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class ByHand(Rule):
    """Call the parts that work over the ranks where a script calls DataParallel's parts by hand.

    ## What it does
    `replicate`, `scatter`, `parallel_apply`, `gather`, `Broadcast.apply`, `Scatter.apply` and the functional
    `data_parallel` are replaced by functions of the same arguments and results, `..._on_ranks`.

    ## Why
    The script holds all chunks, all replicas and all outputs. Every rank holds all of them, so the code around stays as
    it is written; only `parallel_apply` runs replica r on rank r alone, and gives all ranks the outputs of all.

    ## Safety
    Replicas that are called one by one, and modules that were copied in another way, raise on every rank.

    ## References
    torch/nn/parallel/*.py; docs/idioms.md#the-wrap.
    """

    code = "DDP204"
    name = "data-parallel-by-hand"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                from torch.nn.parallel import data_parallel
                y = data_parallel(net, x, range(4), dim=1)
            """,
            after="""
                from torch.nn.parallel import data_parallel
                y = data_parallel_on_ranks(net, x, range(4), dim=1)
            """,
        ),
        Rewrites(
            before="""
                from torch import nn
                def run(net, x, devices):
                    replicas = nn.parallel.replicate(net, devices)
                    parts = nn.parallel.scatter(x, devices)
                    outputs = nn.parallel.parallel_apply(replicas[:len(parts)], parts)
                    return nn.parallel.gather(outputs, devices[0])
            """,
            after="""
                from torch import nn
                def run(net, x, devices):
                    replicas = replicate_on_ranks(net, devices)
                    parts = scatter_to_ranks(x, devices)
                    outputs = parallel_apply_on_ranks(replicas[:len(parts)], parts)
                    return gather_from_ranks(outputs, devices[0])
            """,
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nrows = scatter(rows)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for call in calls_by_hand(facts.script):
            helper = PARTS[call.name or ""]
            if helper == "parallel_apply_on_ranks" and facts.replication.masters:
                helper = "synced_apply_on_ranks"
            because = "all ranks hold all parts; replica r runs on rank r"
            yield Replace(call.node.func, facts.names.helper(helper), because)
            yield Lift(helper, because)
