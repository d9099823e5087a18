"""Make each batch once.

`DataLoader` becomes `Rank0Loader`: the workers are rank 0's alone, and all ranks get its batches. Where it may have
a sampler or a generator of the script's, it becomes `Rank0SamplerLoader`, whose ranks ask these as rank 0 does. A
loader of torch_geometric derives from one of these. One without workers stays: all ranks load alike, from the same
random numbers.

Batches, their order and their random numbers are those of the one process, and workers do not run once a rank.

What loading leaves behind (samplers, counters), its errors and its end come to all ranks.

docs/semantics.md#order, docs/semantics.md#batch-size.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.knowledge.derived import LOADER
from dp2ddp.codemod.looks.threads import is_without, loads_with_workers
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff, rebase, rename

NO_SAMPLER = ((3, "sampler", None), (4, "batch_sampler", None), (12, "generator", None))


class Loader(Rule):
    examples = (
        diff("""
              from torch.utils.data import DataLoader
            - train = DataLoader(data, batch_size=32, num_workers=8)
            - drawn = DataLoader(data, sampler=sampler, num_workers=8)
            + train = Rank0Loader(data, batch_size=32, num_workers=8)
            + drawn = Rank0SamplerLoader(data, sampler=sampler, num_workers=8)
        """),
        Untouched("""
            from torch.utils.data import DataLoader
            train = DataLoader(data, batch_size=32, shuffle=True)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for node, name, call in loads_with_workers(module):
            is_plain = call and is_without(module, call, NO_SAMPLER)
            around = module.parents[node]
            whole = around if isinstance(around, ast.Subscript) and around.value is node else node
            helper = "Rank0Loader" if is_plain else "Rank0SamplerLoader"
            change = rename if name == LOADER else rebase
            yield change(whole, helper, "rank 0 loads each batch for all ranks")
