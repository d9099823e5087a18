"""DDP304: loaders whose samples can be loaded by one rank alone."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class Loader(Rule):
    """Load only the rank's rows of every batch.

    ## What it does
    `DataLoader(...)` becomes `shard(DataLoader, ...)`. The script sees whole batches, as before: a tensor of which
    each rank holds its own rows, and which is made whole where something needs all of it.

    ## Why
    Each sample is loaded once in all, by the rank whose replica gets it, and nothing is sent.

    ## Safety
    Needs a proof: map-style data sets whose `__getitem__` neither draws random numbers nor changes anything, and
    collate functions that make each row of its own sample. Otherwise rank 0 loads for all (DDP307). `batch_size`
    stays the global one; so do `len(loader)`, `.dataset` and `.sampler`.

    ## References
    docs/semantics.md#batch-size, docs/semantics.md#order, docs/semantics.md#strided-rows, docs/semantics.md#padding,
    docs/semantics.md#samplers.
    """

    code = "DDP304"
    name = "loader"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    outputs = net(inputs)
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader, TensorDataset
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                loader = shard(DataLoader, TensorDataset(x, y), batch_size=32, shuffle=True)
                for inputs, targets in loader:
                    outputs = net(inputs)
            """,
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader
            net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            loader = DataLoader(augmented, batch_size=32, shuffle=True)
            for inputs, targets in loader:
                outputs = net(inputs)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if strategy.data.value != "shard" or facts.is_converted:
            return
        because = "each rank loads its own rows of every batch"
        for loader in facts.loaders:
            yield PassTo(loader.call.node, facts.names.helper("shard"), because)
            yield Lift("shard", because)
