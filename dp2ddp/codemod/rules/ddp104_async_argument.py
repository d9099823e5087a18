"""Call `async` by its name of today.

`x.cuda(async=True)` becomes `x.cuda(non_blocking=True)`.

`async` has been a keyword since Python 3.7: the script does not parse.

Nothing else of the text changes.

What is new in Python 3.7.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Replace
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff
from dp2ddp.source.parsing import ASYNC_ARGUMENT, async_arguments

BECAUSE = "`async` is a keyword of Python; torch calls it non_blocking"


class AsyncArgument(Rule):
    everywhere = True
    examples = (
        diff("""
              import torch
              net = torch.nn.DataParallel(net)
            - x = x.cuda(async=True)
            + x = x.cuda(non_blocking=True)
        """),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nx = x.cuda(non_blocking=True)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        if not ASYNC_ARGUMENT.search(module.source.text):
            return
        for node in async_arguments(module.tree):
            if module.text(node).startswith("async"):
                yield Replace(node, "non_blocking={value}", BECAUSE, {"value": node.value})
