"""Say where a module is imported by a name that stands elsewhere.

A note for `import_module(name)`, where the text does not tell which modules that may be. A file that such a module
writes on ranks beside rank 0 is an error, with its line.

Only modules that are found are converted. One that wraps models, or writes files, would do so on every rank.

`import_module("models." + name)` may be any module of that package: all of them are read.

Python documentation, importlib.import_module.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Note
from dp2ddp.codemod.looks.looked_up import imports_unread
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, notes

UNREAD = Reason(
    "unread-module",
    "the name of the module that is imported here stands elsewhere: if nothing else imports it, it was not looked at",
)


class UnreadModule(Rule):
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
            net = torch.nn.DataParallel(importlib.import_module("models." + args.model).build())
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if imports_unread(module, call):
                yield Note(call.node, UNREAD)
