"""Say where a module is imported by a name that stands elsewhere.

A note for `import_module(name)`, where the text does not tell which modules that may be.

Only modules that are found are converted. One that wraps models, or writes files, would do so on every rank.

`import_module("models." + name)` may be any module of that package: all of them are read.

Python documentation, importlib.import_module.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Note
from dp2ddp.codemod.model.modules import IMPORTING, Module
from dp2ddp.codemod.rule import ExactRule, Finding, Untouched, notes
from dp2ddp.source.projects import leading_texts


class UnreadModule(ExactRule):
    nodes = ("Call",)
    examples = (
        notes("""
            # was not looked at
            import importlib
            import torch
            net = torch.nn.DataParallel(importlib.import_module(args.model).build())
        """),
        Untouched("""
            import importlib
            import torch
            for home in ("torch.utils.tensorboard", "tensorboardX"):
                importlib.import_module(home)
            net = torch.nn.DataParallel(importlib.import_module("models." + args.model).build())
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            given = call.argument(0, "name") if call.name in IMPORTING else None
            if given is None or any(module.texts(given)):
                continue
            if not any("." in text for text in leading_texts(module.value(given))):
                yield Note(
                    call.node,
                    "the name of the module that is imported here stands elsewhere: if nothing else imports it, it was "
                    "not looked at",
                )
