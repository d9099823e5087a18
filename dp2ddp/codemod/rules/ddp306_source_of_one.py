"""DDP306: data that ranks could not each read alike."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class SourceOfOne(Rule):
    """Let rank 0 read what the ranks could not each read alike.

    ## What it does
    Where threads or processes of the script load data, they run on rank 0 alone, and so do the queues and events
    through which they hand over: `queue.Queue(8)` becomes `feed(queue.Queue)(8)`. Where samples of a loader differ
    from process to process (a generator without a seed in `__getitem__`), the loader is made on every rank and
    read on rank 0: `feed(DataLoader(...))`.

    ## Why
    Threads hand over in an order of their own, unseeded generators draw numbers of their own: each rank would
    train on other batches.

    ## Safety
    Whatever is asked of a fed object (`get()`, the next item, its length) is asked on rank 0, and the answer,
    the exception or the end comes to every rank, with rank 0's random streams. A thread that changes something
    of the main flow by another way than such objects is a hazard (DDP906).

    ## References
    DESIGN 3, feed; IDIOMS: threads and queues for data, 12 repositories.
    """

    code = "DDP306"
    name = "source-of-one"
    examples = (
        Rewrites(
            before="""
                import queue
                import threading
                import torch
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                batches = queue.Queue(8)
                threading.Thread(target=fill_queue, args=(batches,), daemon=True).start()
                def fill_queue(batches):
                    for i in range(9):
                        batches.put(torch.ones(4, 2))
                for i in range(9):
                    out = net(batches.get())
            """,
            after="""
                import queue
                import threading
                import torch
                net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                batches = feed(queue.Queue)(8)
                feed(threading.Thread)(target=fill_queue, args=(batches,), daemon=True).start()
                def fill_queue(batches):
                    for i in range(9):
                        batches.put(torch.ones(4, 2))
                for i in range(9):
                    out = net(batches.get())
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
                loader = feed(DataLoader(Crops(), batch_size=4))
            """,
        ),
        Untouched("""
            import torch
            from torch.utils.data import DataLoader
            net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
            loader = DataLoader(data, batch_size=4, num_workers=2)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        feed, because = facts.names.helper("feed"), facts.feed_reason or strategy.data.because
        for call in facts.feeds.makers:
            yield Replace(call.node.func, f"{feed}({{it}})", because, {"it": call.node.func})
            yield Lift("feed", because)
        for call in facts.feeds.loaders if _are_fed(facts, strategy) else ():
            yield Replace(call.node, f"{feed}({{loader}})", because, {"loader": call.node})
            yield Lift("feed", because)


def _are_fed(facts: Facts, strategy: Strategy) -> bool:
    """All loaders of a project in which the samples of one differ, or if feeding is asked for."""
    is_live = any(one.feeds.live for one in facts.files)
    return strategy.data.value == "feed" and (is_live or strategy.data.because.endswith("asked for"))
