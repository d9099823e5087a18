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
    through which they hand over: `queue.Queue(8)` becomes `feed(queue.Queue)(8)`. Loaders have a rule of their own
    (DDP307).

    ## Why
    Threads hand over in an order of their own: each rank would train on other batches.

    ## Safety
    Whatever is asked of a fed object (`get()`, the next item, its length) is asked on rank 0, and the answer,
    the exception or the end comes to every rank, with rank 0's random streams. A thread that changes something
    of the main flow by another way than such objects is a hazard (DDP906).

    ## References
    docs/data.md, docs/semantics.md#iterable, docs/idioms.md#data-and-inputs.
    """

    code = "DDP306"
    name = "source-of-one"
    nodes = ("Attribute", "Name")
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
