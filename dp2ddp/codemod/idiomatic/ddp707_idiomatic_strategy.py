"""Say "ddp" to a library where the script says "dp".

`strategy="dp"` of Lightning Fabric, and `accelerator="dp"` of a Lightning that had it, become `"ddp"`.

The library wraps the model, and starts or joins the ranks by itself.

Each rank takes `batch_size` rows then, which DataParallel's GPUs shared: the report says so. What is no word, as
`DataParallelStrategy()` or a setting in a file, is left, and the notes say what to write.

docs/hf_trainer.md.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Replace
from dp2ddp.codemod.looks.hidden_wraps import hidden_wraps
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff


class LibraryStrategy(Rule):
    nodes = ("SimpleString",)
    examples = (
        diff("""
              import pytorch_lightning as pl
              from lightning.fabric import Fabric
            - fabric = Fabric(devices=2, strategy="dp")
            + fabric = Fabric(devices=2, strategy="ddp")
            - how = "dp"
            + how = "ddp"
              trainer = pl.Trainer(gpus=2, accelerator=how)
        """),
        Untouched("""
            from lightning.fabric import Fabric
            fabric = Fabric(devices=2, strategy="ddp")
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for wrap in hidden_wraps(module.program):
            for word in wrap.library.switch if wrap.module is module and wrap.call else ():
                given = wrap.call.argument(None, word)  # type: ignore[union-attr]  # asked above
                value = module.value(given) if given is not None else None
                if isinstance(value, ast.Constant) and value.value == "dp":
                    yield Replace(value, '"ddp"', "the library wraps the model, on each rank")
