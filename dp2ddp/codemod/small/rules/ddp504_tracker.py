"""DDP504: what reports a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import InsertAfter
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.rule import Change, Finding, Rule, call_by

HELPERS = {Does.TRACK: "make_on_rank0", Does.HANDLE_LOG: "make_handler_on_rank0"}
BECAUSE = "one run has one log: rank 0's"


class Tracker(Rule):
    """Report a run once.

    ## What it does
    `SummaryWriter(path)` becomes `make_on_rank0(SummaryWriter, path)`; under `import wandb` comes
    `wandb = library_on_rank0(wandb)`: on other ranks calls of these do nothing.

    ## Why
    Every rank would report a run of its own.
    """

    code = "DDP504"
    name = "tracker"
    nodes = ("Call", "Import")
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            kind = does(call.name)
            if kind in HELPERS:
                yield call_by(call.node, HELPERS[kind], BECAUSE)
        for node in module.all(ast.Import):
            yield from _tracked(
                module,
                node,
                [(alias.name, alias.asname or alias.name.partition(".")[0]) for alias in node.names],
            )
        for imported in module.all(ast.ImportFrom):
            home = module.home_of(imported)
            yield from _tracked(
                module, imported, [(home, alias.asname or alias.name) for alias in imported.names]
            )


def _tracked(module: Module, node: ast.stmt, bound: list[tuple[str, str]]) -> Iterator[Finding]:
    for dotted, name in bound:
        if dotted.partition(".")[0] in TRACKING and not module.program.is_local(dotted):
            yield Change(
                InsertAfter(node, f"{name} = library_on_rank0({name})", BECAUSE), ("library_on_rank0",)
            )
