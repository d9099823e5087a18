"""DDP307: loaders whose batches rank 0 makes for all ranks."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import ONCE, Strategy


class SharedLoader(Rule):
    """Make each batch once, on rank 0, and let the other ranks map its memory.

    ## What it does
    `DataLoader(...)` becomes `share(DataLoader, ...)`, also of a class of the script's own. Rank 0 alone iterates it.

    ## Why
    Otherwise every rank would load every batch: W times the work, on one machine. And rank 0 loads as the one process
    of DataParallel did: the same workers, seeds and order, whatever samples draw or where they come from.

    ## Safety
    A batch lies in memory once on a node, and what a rank writes into it no other sees. Errors and the end of the data
    come to all ranks alike, and so do the script's random streams. Numbers, texts, lists of them and generators that
    loading changes in the loader, its samplers and its data set are the same on all ranks.
    Not taken where code of the data set changes something that the script reads elsewhere, where workers
    share memory with the script, or where loading runs the wrapped model: then every rank loads all of it. Loaders
    that are proven to be shared out by rows have a rule of their own (DDP304).

    ## References
    torch/utils/data/dataloader.py; torch/multiprocessing/reductions.py; docs/semantics.md#order,
    docs/semantics.md#augmentations.
    """

    code = "DDP307"
    name = "shared-loader"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.utils.data import DataLoader
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                train = DataLoader(augmented, batch_size=32, shuffle=True, num_workers=8)
                test = DataLoader(plain, batch_size=32)
                for inputs, targets in train:
                    outputs = net(inputs)
            """,
            after="""
                import torch
                from torch.utils.data import DataLoader
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                train = share(DataLoader, augmented, batch_size=32, shuffle=True, num_workers=8)
                test = share(DataLoader, plain, batch_size=32)
                for inputs, targets in train:
                    outputs = net(inputs)
            """,
        ),
        Rewrites(
            before="""
                import numpy as np
                import torch
                from torch.utils.data import DataLoader, Dataset
                class Crops(Dataset):
                    def __getitem__(self, i):
                        start = np.random.default_rng().integers(8)
                        return self.rows[i][start:start + 8]
                net = torch.nn.DataParallel(torch.nn.Linear(8, 2))
                loader = DataLoader(Crops(), batch_size=4)
            """,
            after="""
                import numpy as np
                import torch
                from torch.utils.data import DataLoader, Dataset
                class Crops(Dataset):
                    def __getitem__(self, i):
                        start = np.random.default_rng().integers(8)
                        return self.rows[i][start:start + 8]
                net = torch.nn.DataParallel(torch.nn.Linear(8, 2))
                loader = share(DataLoader, Crops(), batch_size=4)
            """,
        ),
        Untouched("""
            import multiprocessing
            import torch
            from torch.utils.data import DataLoader
            net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            seen = multiprocessing.Value("i", 0)
            train = DataLoader(Counting(seen), batch_size=32, shuffle=True, num_workers=8)
            for inputs, targets in train:
                outputs = net(inputs)
        """),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader, Dataset
            class Counting(Dataset):
                def __getitem__(self, i):
                    self.taken[i] += 1
                    return self.rows[i]
            net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            data = Counting()
            for inputs in DataLoader(data, batch_size=32):
                outputs = net(inputs)
            print(data.taken)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not strategy.shares or strategy.data.value == ONCE or facts.is_converted:
            return
        because = "rank 0 makes each batch, as one process would; the others map its memory"
        for call in facts.shared_loaders:
            yield PassTo(call.node, facts.names.helper("share"), because)
            yield Lift("share", because)
