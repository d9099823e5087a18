"""Save checkpoints once.

`torch.save` becomes `save_on_rank0`, called or handed on.

When every rank saves to one path and loads from it, 88 of 120 loads failed and 19 gave a mixture of two ranks.

A file is written beside its place and moved there: it is never half a checkpoint. A link, and a file with a second
name, are written where they are.

docs/semantics.md#wrapper, docs/semantics.md#saving.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.looks.mentions import replaced
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff


class TorchSave(Rule):
    nodes = ("Attribute", "Name")
    examples = (
        diff("""
              import torch
              net = torch.nn.DataParallel(net)
            - torch.save(net.state_dict(), "best.pt")
            + save_on_rank0(net.state_dict(), "best.pt")
            - writers = {"pt": torch.save}
            + writers = {"pt": save_on_rank0}
        """),
        Untouched("""
            import torch
            net = torch.nn.DataParallel(net)
            self.save(net)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        return replaced(module, {"torch.save": "save_on_rank0"}, "rank 0 saves, once for all ranks")
