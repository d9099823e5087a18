"""DDP205: DataParallel, handed on."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import hidden_references
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class HandedOn(Rule):
    """Hand on the class that works over the ranks where DataParallel is handed on.

    ## What it does
    Where `nn.DataParallel` is passed to a function, put into a dict, given to `functools.partial`, or fetched by its
    name (`getattr(nn, "DataParallel")`, `vars(nn)["DataParallel"]`, `eval("nn.DataParallel")`,
    `importlib.import_module("torch.nn").DataParallel`), `DataParallelOnRanks` takes its place.

    ## Why
    The wrap itself cannot be seen, and need not be: the class takes DataParallel's arguments.

    ## Safety
    Since the wraps are not seen, nothing is assumed about them: whole batches, gradients summed inside the graph.

    ## References
    torch/nn/parallel/data_parallel.py.
    """

    code = "DDP205"
    name = "data-parallel-handed-on"
    nodes = ("Attribute", "Call", "Name")
    examples = (
        Rewrites(
            before="""
                import functools
                from torch import nn
                kinds = {"dp": functools.partial(nn.DataParallel, dim=1), "none": lambda net: net}
                net = kinds["dp"](net)
            """,
            after="""
                import functools
                from torch import nn
                kinds = {"dp": functools.partial(DataParallelOnRanks, dim=1), "none": lambda net: net}
                net = kinds["dp"](net)
            """,
        ),
        Rewrites(
            before="""
                from torch import nn
                net = getattr(nn, "DataParallel")(net)
            """,
            after="""
                from torch import nn
                net = DataParallelOnRanks(net)
            """,
        ),
        Untouched(
            """
                from typing import Optional, Union
                import torch.nn as nn
                def save(model: Union[nn.Module, nn.DataParallel]) -> nn.DataParallel:
                    found: Optional[nn.DataParallel] = None
            """
        ),
        Untouched(
            "from torch import nn\nDP = nn.DataParallel\nnet = DP(net)\nif isinstance(net, DP):\n    pass"
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for reference in hidden_references(facts.script):
            because = "takes DataParallel's place and its arguments, wherever it is called"
            yield Replace(reference, facts.names.helper(facts.wrapper_with_parts), because)
            yield Lift(facts.wrapper_with_parts, because)
