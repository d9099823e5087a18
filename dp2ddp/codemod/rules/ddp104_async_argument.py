"""DDP104: `async=True`, which no current Python can read."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.source.parsing import ASYNC_ARGUMENT, async_arguments


class AsyncArgument(Rule):
    """Write `non_blocking` where an old script says `async`.

    ## What it does
    `x.cuda(async=True)` becomes `x.cuda(non_blocking=True)`.

    ## Why
    `async` is a keyword since Python 3.7: the script cannot run, neither before nor after the conversion.

    ## Safety
    torch renamed the argument in version 0.4; it means the same.

    ## References
    docs/idioms.md#files-logs-devices-processes.
    """

    code = "DDP104"
    name = "async-argument"
    nodes = ("Arg",)
    everywhere = True  # a file is read as a whole
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                x = x.cuda(async=True)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                x = x.cuda(non_blocking=True)
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                def never_called(x):
                    return x.cuda(async=True)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                def never_called(x):
                    return x.cuda(non_blocking=True)
            """,
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nx = x.cuda(non_blocking=True)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not ASYNC_ARGUMENT.search(facts.script.source.text):
            return
        for node in async_arguments(facts.script.tree):
            if facts.script.text(node).startswith("async"):
                because = "`async` is a keyword of Python; torch calls it non_blocking"
                yield Replace(node, "non_blocking={value}", because, {"value": node.value})
