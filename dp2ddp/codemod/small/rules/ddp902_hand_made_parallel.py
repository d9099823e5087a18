"""DDP902: parallel wrappers that are not DataParallel."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.small.rule import Finding, Rule

WRAPPER = re.compile(r"[Dd]ata_?[Pp]arallel|replication_callback")


class HandMadeParallel(Rule):
    """Look at parallel code that is not DataParallel's.

    ## What it does
    A hazard for wrappers of libraries, for copies between devices, and for classes that are looked up by a computed
    name.

    ## Why
    What they split and join cannot be read off.
    """

    code = "DDP902"
    name = "hand-made-parallel"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            message = _message(module, call)
            if message:
                yield Hazard(call.node, message, "write nn.DataParallel, then convert again")


def _message(module: Module, call: Call) -> str | None:
    last = (call.name or "").rpartition(".")[2] or call.method
    if does(call.name) is Does.COPY_BY_HAND:
        return f"{call.name} copies between devices of one process"
    if (
        call.name == "builtins.getattr"
        and len(call.node.args) > 1
        and not isinstance(call.node.args[1], ast.Constant)
    ):
        owner = module.name(call.node.args[0])
        if owner in ("torch.nn", "torch.nn.parallel") and _is_named(module):
            return "a class that is looked up by name may be DataParallel"
    is_known = (
        does(call.name) is not None or module.program.is_local(call.name) or last in module.program.methods
    )
    if call.name and WRAPPER.search(last) and not is_known:
        return f"{call.name} is a wrapper whose source is not here"
    return None


def _is_named(module: Module) -> bool:
    texts = (node.value for each in module.program.modules for node in each.all(ast.Constant))
    return any(
        isinstance(text, str) and len(text) < 80 and re.search(r"\bDataParallel\b", text) for text in texts
    )
