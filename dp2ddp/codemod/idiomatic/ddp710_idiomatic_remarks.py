"""Say where numbers are a rank's own, and skip a batch on all ranks or on none.

Puts a comment above a loss that is a sum (DDP averages gradients over the ranks: they are 1 / W of what they were)
or that compares rows, above training figures that are shown or decide something,
errors that are swallowed in a step, and clocks that name files. Where a loop that trains goes on or ends by
what a batch holds (`if torch.isnan(loss): continue`), the ranks add up what each finds, and do what one has to do.

What to do depends on what the owner wants: no code is right for all. A rank that skips a backward pass by itself
leaves the others waiting for its gradients.

The looks are local, and by names: a comment may be missing, or be needless.

docs/idiomatic.md.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, InsertBefore, Replace
from dp2ddp.codemod.idiomatic.models import wraps_of
from dp2ddp.codemod.idiomatic.new_names import names_cuda, remark, words_of
from dp2ddp.codemod.idiomatic.style_differences import REMARKS, skipping
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff

SKIPPED = "all ranks skip a batch, or none"


class Remarks(Rule):
    nodes = ("BaseStatement", "If")
    examples = (
        diff("""
              import torch
              import torch.distributed as dist
              from torch import nn
              net = nn.DataParallel(net.cuda())
            + # dp2ddp: a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before
              criterion = nn.CrossEntropyLoss(reduction="sum")
              for x, y in batches:
                  loss = criterion(net(x), y)
            -     if torch.isnan(loss):
            +     skips = torch.tensor(float(torch.isnan(loss)), device="cuda")
            +     dist.all_reduce(skips)  # what one rank does, all do
            +     if skips > 0:
                      continue
                  loss.backward()
        """),
        Untouched("from torch import nn\ncriterion = nn.CrossEntropyLoss()"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        if not wraps_of(module.program):
            return
        for look, each in REMARKS.items():
            for statement in dict.fromkeys(map(module.statement, look(module))):
                yield remark(module, statement, each.text)
        device = ', device="cuda"' if names_cuda(module.program) else ""
        words = words_of(module)
        for node in skipping(module):
            code = f"skips = {words['torch']}.tensor(float({module.text(node.test)}){device})\n"
            code += f"{words['dist']}.all_reduce(skips)  # what one rank does, all do"
            yield InsertBefore(node, code, SKIPPED, apart=False)
            yield Replace(node.test, "skips > 0", SKIPPED)
