"""DDP307: workers of loaders, which can be shared out among the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.workers import DataSetKind, data_set_kind, loaders_with_workers
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

BECAUSE = "each batch is loaded once, as it always was"


class LoaderWorkers(Rule):
    """Load each batch once, in the worker that would have loaded it.

    ## What it does
    `DataLoader(..., num_workers=8)` becomes `spread(DataLoader, ..., num_workers=8)`, where samples draw random
    numbers (crops, flips) or cannot be followed, so that no rank may load its own rows alone.

    ## Why
    Otherwise every rank would load every batch: W times the work, on one machine.

    ## Safety
    A DataLoader gives batch b to worker b % num_workers, and each worker draws from random streams of its own. So
    worker w can work on rank w % W, and its batches come out as they did. They are sent to all ranks. Loaders that
    have no workers when they run are left alone, and so are loaders of iterable data sets: every rank loads all of it.
    Not taken where threads or processes of the script may read batches, where workers share memory, and where a worker
    prints.

    ## References
    torch/utils/data/dataloader.py (_try_put_index), torch/utils/data/_utils/worker.py (_worker_loop); SEMANTICS 1 to 9.
    """

    code = "DDP307"
    name = "loader-workers"
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
                train = spread(DataLoader, augmented, batch_size=32, shuffle=True, num_workers=8)
                test = DataLoader(plain, batch_size=32)
                for inputs, targets in train:
                    outputs = net(inputs)
            """,
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader, IterableDataset
            class Stream(IterableDataset):
                def __iter__(self):
                    yield torch.rand(2)
            net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            for inputs in DataLoader(Stream(), batch_size=32, num_workers=8):
                outputs = net(inputs)
        """),
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
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if strategy.data.value != "spread" or facts.is_converted:
            return
        for call in loaders_with_workers(facts.script):
            kind = data_set_kind(facts.script, call)
            because = (
                BECAUSE if kind is DataSetKind.MAP else f"{BECAUSE} (of an IterableDataset by every rank)"
            )
            yield PassTo(call.node, facts.names.helper("spread"), because)
            yield Lift("spread", because)
