"""DDP301: data sets that download themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import downloads
from dp2ddp.codemod.facts.places import Place
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class Download(Rule):
    """Let rank 0 download first.

    ## What it does
    A call with `download=True` (or a `download=` that depends) becomes `rank_zero_first(f, ..., download=True)`.

    ## Why
    All ranks would download and unpack into one folder at the same time.

    ## Safety
    Rank 0 makes its data set; when that is done, the others make theirs and find the files. Classes of the
    script itself are left alone: what they write is converted where it is written.

    ## References
    docs/semantics.md#downloads.
    """

    code = "DDP301"
    name = "download"
    examples = (
        Rewrites(
            before="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                train = datasets.CIFAR10("data", train=True, download=True)
            """,
            after="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                train = rank_zero_first(datasets.CIFAR10, "data", train=True, download=True)
            """,
        ),
        Untouched("""
            import torch
            from torchvision import datasets
            net = torch.nn.DataParallel(net)
            train = datasets.CIFAR10("data", train=True, download=False)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "rank 0 downloads, then the others find the files"
        for call in downloads(facts.script):
            own = isinstance(facts.script.scopes.definition(call.node.func), ast.ClassDef)
            is_super = ast.unparse(call.node.func).startswith("super(")
            if own or is_super or facts.places.of(call.node) is not Place.MAIN:
                continue
            yield PassTo(call.node, facts.names.helper("rank_zero_first"), because)
            yield Lift("rank_zero_first", because)
