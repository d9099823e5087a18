"""DDP703: data sets that download themselves."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, InsertAfter, InsertBefore
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import downloads
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.idiomatic.process_names import ProcessNames, statement_of
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class DownloadOnce(Rule):
    """Let rank 0 download, while the other ranks wait.

    ## What it does
    Puts barriers around a statement with `download=True`: the other ranks wait before it, rank 0 behind it.

    ## Why
    All ranks would download and unpack into one folder at the same time.

    ## Safety
    Each rank meets one barrier, before the statement or behind it; the others find the files.

    ## References
    docs/semantics.md#downloads; docs/idiomatic.md.
    """

    code = "DDP703"
    name = "idiomatic-download"
    nodes = ("BaseStatement",)
    examples = (
        Rewrites(
            before="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                train = datasets.CIFAR10("data", train=True, download=True)
                test = datasets.CIFAR10("data", train=False, download=True)
            """,
            after="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                if rank != 0:
                    dist.barrier()
                train = datasets.CIFAR10("data", train=True, download=True)
                test = datasets.CIFAR10("data", train=False, download=True)
                if rank == 0:
                    dist.barrier()
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
        words = ProcessNames(facts)
        because = "rank 0 downloads, then the others find the files"
        wait = f"    {words.dist}.barrier()"
        statements = {
            statement_of(facts, call.node): None
            for call in downloads(facts.script)
            if facts.places.of(call.node) is ExecutionPlace.MAIN
            and not facts.script.text_of(call.node.func).startswith("super(")
        }
        for first, last in _neighbours(facts, list(statements)):
            yield InsertBefore(first, f"if {words.rank} != 0:\n{wait}", because, apart=False)
            yield InsertAfter(last, f"if {words.is_first}:\n{wait}", because)
            yield from words.imports(because)


def _neighbours(facts: Facts, statements: list):  # type: ignore[no-untyped-def,type-arg]
    """Statements that stand one behind the other wait together."""
    runs: list[list] = []  # type: ignore[type-arg]
    for statement in statements:
        if runs and _follows(facts, runs[-1][-1], statement):
            runs[-1].append(statement)
        else:
            runs.append([statement])
    return [(run[0], run[-1]) for run in runs]


def _follows(facts: Facts, first, other) -> bool:  # type: ignore[no-untyped-def]
    """Whether a statement comes next in the same block."""
    parent = facts.script.scopes.parents[first]
    blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
    return any(
        isinstance(block, list) and first in block and block[block.index(first) + 1 :][:1] == [other]
        for block in blocks
    )
