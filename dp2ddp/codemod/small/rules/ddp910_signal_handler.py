"""DDP910: signal handlers."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Note
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Notes, Untouched
from dp2ddp.codemod.small.rule import Finding, Rule


class SignalHandler(Rule):
    """Know that a signal reaches one process of several.

    ## What it does
    A note where a handler is set.

    ## Why
    A flag that one rank's handler sets is not set on the others.

    ## Safety
    Nothing is changed.

    ## References
    Python documentation, signal.
    """

    code = "DDP910"
    name = "signal-handler"
    nodes = ("Call",)
    examples = (
        Notes(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                import signal
                signal.signal(signal.SIGTERM, stop)
            """,
            message="a signal reaches one process",
        ),
        Untouched(
            """
                import torch
                net = torch.nn.DataParallel(net)
                import signal
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            """
        ),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            handler = call.argument(1, "handler")
            is_own = not (module.name(handler) or "").startswith("signal.")
            if does(call.name) is Does.HANDLE_SIGNAL and is_own:
                yield Note(call.node, "a signal reaches one process of several")
