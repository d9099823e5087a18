"""DDP304: loaders."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.mentions import is_type_test, mentions
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.rule import Finding, Rule, Untouched, diff, rename

LOADER = "torch.utils.data.DataLoader"


class Loader(Rule):
    """Make each batch once.

    ## What it does
    `DataLoader` becomes `Rank0Loader`: the workers are rank 0's alone, and all ranks get its batches. A loader without
    workers stays: all ranks load alike, from the same random numbers.

    ## Why
    Batches, their order and their random numbers are those of the one process, and workers do not run once a rank.

    ## Safety
    What loading leaves behind (samplers, counters), its errors and its end come to all ranks.

    ## References
    docs/semantics.md#order, docs/semantics.md#batch-size.
    """

    code = "DDP304"
    name = "loader"
    nodes = ("Attribute", "Name", "Subscript")
    examples = (
        diff("""
              import torch
              from torch.utils.data import DataLoader
            - train = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, num_workers=8)
            + train = Rank0Loader(data, batch_size=32, shuffle=True, num_workers=8)
              test = DataLoader(data)
            - class Endless(DataLoader[int]):
            + class Endless(Rank0Loader):
                  pass
        """),
        Untouched("""
            from torch.utils.data import DataLoader
            train = DataLoader(data, batch_size=32, shuffle=True)
            test = DataLoader(data, 32, num_workers=0)
            def show(loader: DataLoader):
                assert isinstance(loader, DataLoader)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for node, _ in mentions(module, [LOADER]):
            if is_type_test(module, node) or _has_no_workers(module, node):
                continue
            around = module.parents[node]
            whole = around if isinstance(around, ast.Subscript) and around.value is node else node
            yield rename(whole, "Rank0Loader", "rank 0 loads each batch for all ranks")


def _has_no_workers(module: Module, node: ast.expr) -> bool:
    """`DataLoader(data, batch_size=8)`: what starts no process."""
    parent = module.parents[node]
    if not isinstance(parent, ast.Call) or parent.func is not node:
        return False
    call = Call(parent, LOADER)
    workers = call.argument(5, "num_workers")
    is_none = workers is None or isinstance(workers, ast.Constant) and workers.value == 0
    return is_none and not call.may_have_more
