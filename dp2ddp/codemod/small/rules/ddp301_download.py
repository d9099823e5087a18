"""DDP301: downloads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.small.rule import Finding, Rule, call_by


class Download(Rule):
    """Download once.

    ## What it does
    `MNIST(root, download=True)` becomes `rank0_first(MNIST, root, download=True)`: rank 0 calls it before the others.

    ## Why
    Ranks that download into one place at once tear what they load; behind rank 0 they find it there.
    """

    code = "DDP301"
    name = "download"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if _downloads(module, call):
                yield call_by(call.node, "rank0_first", "rank 0 downloads, and the others find it there")


def _downloads(module: Module, call: Call) -> bool:
    if does(call.name) is Does.DOWNLOAD:
        return True
    if module.program.is_local(call.name):
        return False
    given = call.keyword("download")
    is_conditional = given is not None and not (
        isinstance(given.value, ast.Constant) and not given.value.value
    )
    return is_conditional or call.method == "from_pretrained"
