"""DDP906: threads and processes of the script itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import EXITS
from dp2ddp.codemod.facts.own_mode import is_other_mode
from dp2ddp.codemod.facts.sources import NOT_FED
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class OwnProcesses(Rule):
    """Say where a script starts threads or processes of its own.

    ## What it does
    A hazard for threads and processes that cannot be left to rank 0 (DDP306), mp.spawn, os.fork, os._exit.

    ## Why
    What threads hand over comes in an order that differs from rank to rank, and then so do the batches; forked
    ranks share connections; os._exit leaves the others waiting.

    ## Safety
    Workers of a DataLoader are no hazard: they hand over in order. Threads that hand over by queues and events
    are none either: rank 0 runs them, and its queue is asked (DDP306).

    ## References
    docs/semantics.md#own-processes, docs/semantics.md#end-of-process.
    """

    code = "DDP906"
    name = "own-processes"
    nodes = ("Call",)
    examples = (
        Flags(
            before="""
                import threading
                import torch
                net = torch.nn.DataParallel(net)
                found = []
                def fill():
                    found.append(torch.ones(4, 2))
                threading.Thread(target=fill).start()
            """,
            message="threading.Thread() changes `found`",
        ),
        Flags(
            before="""
                import os
                import torch
                net = torch.nn.DataParallel(net)
                os._exit(0)
            """,
            message="os._exit",
        ),
        Untouched("""
            import torch
            import torch.multiprocessing as mp
            def worker(gpu):
                net = torch.nn.DataParallel(net)
            if args.distributed:
                mp.spawn(worker, nprocs=4)
            else:
                worker(None)
        """),
        Untouched(
            "import torch\nnet = torch.nn.DataParallel(net)\nloader = torch.utils.data.DataLoader(data, num_workers=4)"
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for call, why in facts.feeds.stoppers:
            name = ast.unparse(call.node.func)
            yield Hazard(
                call.node,
                f"{name}() {why}",
                "hand over by a queue.Queue alone, with a random generator of its own; or load with a DataLoader",
            )
        for call in facts.script.calls:
            if (call.name in NOT_FED or call.name in EXITS) and not is_other_mode(
                facts.modules, facts.script, call
            ):
                yield Hazard(
                    call.node,
                    f"{call.name}() makes the ranks differ, or leaves some of them waiting",
                    "load with a DataLoader, and end with sys.exit(); or keep this script on DataParallel",
                )
