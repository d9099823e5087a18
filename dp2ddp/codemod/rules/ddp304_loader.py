"""DDP304: loaders whose samples can be loaded by one rank alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, PassTo, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class Loader(Rule):
    """Load only the rank's rows of every batch.

    ## What it does
    `DataLoader(...)` becomes `shard(DataLoader, ...)`, if all loaders of the script feed the wrapped model in
    plain loops.

    ## Why
    Loading the whole batch on every rank is always right, but costs W times the loading.

    ## Safety
    Needs a proof: a map-style data set whose `__getitem__` neither draws random numbers nor changes anything,
    the default collate, one forward of the wrapped model for each batch, and everything that is used of the
    batch behind it. `batch_size` stays the global one; so do `len(loader)`, `.dataset` and `.sampler`.

    ## References
    SEMANTICS 1 to 9.
    """

    code = "DDP304"
    name = "loader"
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
            if strategy.join.value == "batch":
                yield from _made_whole(facts, loader.call.node)


def _made_whole(facts: Facts, loader: ast.Call) -> Iterator[Finding]:
    because = "each rank loads its own rows; the batch is made whole again"
    yield Replace(loader, f"{facts.names.helper('whole_batches')}({{loader}})", because, {"loader": loader})
    yield Lift("whole_batches", because)
