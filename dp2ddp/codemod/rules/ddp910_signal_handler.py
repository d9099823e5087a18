"""DDP910: handlers of signals."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class SignalHandler(Rule):
    """Say that a signal reaches one process.

    ## What it does
    A note for `signal.signal(...)` with a handler of the script.

    ## Why
    DataParallel's run is one process. Of a torchrun run each rank has a handler, and `kill` reaches one of them: it
    would leave the loop while the others wait for it. torchrun hands on SIGTERM and SIGINT, but not in the same step.

    ## Safety
    Nothing is changed: without a signal both run alike. `SIG_DFL` and `SIG_IGN` are no handlers.

    ## References
    torch/distributed/elastic/multiprocessing/api.py.
    """

    code = "DDP910"
    name = "signal-handler"
    nodes = ("Call",)
    examples = (
        Notes(
            before="""
                import signal
                import torch
                net = torch.nn.DataParallel(net)
                signal.signal(signal.SIGUSR1, save_and_stop)
            """,
            message="reaches one rank",
        ),
        Untouched(
            """
            import signal
            import torch
            net = torch.nn.DataParallel(net)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            """
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted or not facts.all_wraps:
            return
        for call in facts.script.calls_of("signal.signal"):
            handler = call.argument(1, "handler")
            if handler is not None and not facts.script.text_of(handler).endswith(("SIG_DFL", "SIG_IGN")):
                yield Note(
                    call.node,
                    "a signal reaches one rank, or each at another step, and ranks that part ways wait for each other: "
                    "stop the run by a file or a number of epochs instead",
                )
