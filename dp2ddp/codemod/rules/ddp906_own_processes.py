"""DDP906: threads and processes of the script itself."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import EXITS, STARTERS
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class OwnProcesses(Rule):
    """Say where a script starts threads or processes of its own.

    ## What it does
    A hazard for threading.Thread, multiprocessing.Process and Pool, mp.spawn, os.fork, os._exit.

    ## Why
    What threads hand over comes in an order that differs from rank to rank, and then so do the batches; forked
    ranks share connections; os._exit leaves the others waiting.

    ## Safety
    Workers of a DataLoader are no hazard: they hand over in order.

    ## References
    SEMANTICS 85 to 89; IDIOMS: threads and queues for data, 12 repositories.
    """

    code = "DDP906"
    name = "own-processes"
    examples = (
        Flags(
            before="""
                import threading
                import torch
                net = torch.nn.DataParallel(net)
                threading.Thread(target=fill, args=(queue,)).start()
            """,
            message="threading.Thread",
        ),
        Untouched(
            "import torch\nnet = torch.nn.DataParallel(net)\nloader = torch.utils.data.DataLoader(data, num_workers=4)"
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for call in facts.script.calls:
            if call.name in STARTERS or call.name in EXITS:
                yield Hazard(
                    call.node,
                    f"{call.name}() makes the ranks differ, or leaves some of them waiting",
                    "load with a DataLoader, and end with sys.exit(); or keep this script on DataParallel",
                )
