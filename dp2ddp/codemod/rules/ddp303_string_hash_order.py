"""DDP303: orders that depend on string hashes."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.orders import hash_orders
from dp2ddp.codemod.rule import Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class StringHashOrder(Rule):
    """Say where an order depends on the hashes of strings.

    ## What it does
    A note where the script walks over a set, makes a list of one, or hands one on to where it may be walked over;
    and where it calls hash(). PYTHONHASHSEED=0 stands in the launch line.

    ## Why
    Python salts the hashes of strings in every process anew: each rank would walk over a set of names in another order.

    ## Safety
    With PYTHONHASHSEED set, all ranks have the same order. `sorted(set(...))`, `len(set(...))` and `name in seen` need
    nothing. `verify` gives each rank hashes of its own, unless the launch line sets them.

    ## References
    Python documentation, PYTHONHASHSEED.
    """

    code = "DDP303"
    name = "string-hash-order"
    examples = (
        Notes(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                classes = list(set(labels))
            """,
            message="PYTHONHASHSEED",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nclasses = sorted(set(labels))"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for node in hash_orders(facts.script):
            yield Note(
                node,
                "the order of a set differs from process to process: start with PYTHONHASHSEED=0, as below",
            )
