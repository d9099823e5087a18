"""DDP203: subclasses of DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import DATA_PARALLEL, subclasses
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class DataParallelSubclass(Rule):
    """Give a subclass of DataParallel a base that has the same parts, over the ranks.

    ## What it does
    `class Balanced(nn.DataParallel)` becomes `class Balanced(DataParallelOnRanks)`. What the class overrides (scatter
    with other shares, gather, forward, an own `__getattr__`) stays as it is written, and so do its calls.

    ## Why
    Such a class decides itself which rows go to which replica. Every rank holds all parts of the batch and decides
    the same; `parallel_apply` runs replica r on rank r, and gives all ranks all outputs.

    ## Safety
    A replica that is called by anything but `parallel_apply` raises on every other rank. Where nothing but
    `__getattr__` and methods of its own are added, the whole forward is that of `GraphDDP`.

    ## References
    torch/nn/parallel/data_parallel.py; docs/idioms.md#the-wrap.
    """

    code = "DDP203"
    name = "data-parallel-subclass"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                from torch import nn
                class Easy(nn.DataParallel):
                    def __getattr__(self, name):
                        try:
                            return super().__getattr__(name)
                        except AttributeError:
                            return getattr(self.module, name)
                net = Easy(nn.Linear(2, 2))
            """,
            after="""
                from torch import nn
                class Easy(DataParallelOnRanks):
                    def __getattr__(self, name):
                        try:
                            return super().__getattr__(name)
                        except AttributeError:
                            return getattr(self.module, name)
                net = Easy(nn.Linear(2, 2))
            """,
        ),
        Untouched("from torch import nn\nclass Net(nn.Module):\n    pass\nnet = nn.DataParallel(Net())"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for node in subclasses(facts.script, facts.modules):
            for base in node.bases:
                if facts.script.scopes.name(base) == DATA_PARALLEL:
                    because = f"{node.name} has DataParallel's parts, over the ranks"
                    yield Replace(base, facts.names.helper(facts.wrapper_with_parts), because)
                    yield Lift(facts.wrapper_with_parts, because)
