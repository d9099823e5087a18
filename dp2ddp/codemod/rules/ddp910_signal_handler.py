"""Know that a signal reaches one process of several.

A note where a handler is set.

A flag that one rank's handler sets is not set on the others.

Without a signal both run alike. `SIG_DFL` and `SIG_IGN` are no handlers.

torch/distributed/elastic/multiprocessing/api.py.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Note
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, notes

BECAUSE = Reason(
    "signal-handler",
    "a signal reaches one rank, or each at another step, and ranks that part ways wait for each other: stop the run by "
    "a file or a number of epochs instead",
)


class SignalHandler(Rule):
    nodes = ("Call",)
    examples = (
        notes("""
            # reaches one rank
            import signal
            import torch
            net = torch.nn.DataParallel(net)
            signal.signal(signal.SIGUSR1, save_and_stop)
        """),
        Untouched("""
            import signal
            import torch
            net = torch.nn.DataParallel(net)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            handler = call.argument(1, "handler")
            is_own = not (module.name(handler) or "").startswith("signal.")
            if does(call.name) is Does.HANDLE_SIGNAL and is_own:
                yield Note(call.node, BECAUSE)
