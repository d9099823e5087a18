"""DDP303: orders that depend on string hashes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.orders import address_orders, hash_orders
from dp2ddp.codemod.rule import Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class StringHashOrder(Rule):
    """Say where an order depends on the hashes of strings.

    ## What it does
    One note in a file, with all its places: where the script walks over a set, makes a list of one, or hands one on to
    where it may be walked over; and where it calls hash(). PYTHONHASHSEED=0 stands in the launch line. One note more
    where such a set holds parameters or modules, which no seed helps: walk over `net.parameters()`, and ask the set
    with `in`.

    ## Why
    Python salts the hashes of strings in every process anew: each rank would walk over a set of names in another order.
    Parameters and modules are hashed by their addresses, which are others on each rank and in each run. Where numbers
    are drawn in that order, noise for each gradient say, ranks part.

    ## Safety
    With PYTHONHASHSEED set, all ranks have the same order. `sorted(set(...))`, `len(set(...))` and `name in seen` need
    nothing. `verify` gives each rank hashes of its own, unless the launch line sets them.

    ## References
    Python documentation, PYTHONHASHSEED.
    """

    code = "DDP303"
    name = "string-hash-order"
    nodes = ("Call",)
    examples = (
        Notes(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                classes = list(set(labels))
            """,
            message="PYTHONHASHSEED",
        ),
        Notes(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                classes = list(set(labels))
                words = list(set(texts))
            """,
            message="(also in line 4)",
        ),
        Notes(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                kept = list(set(net.parameters()))
            """,
            message="their addresses",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nclasses = sorted(set(labels))"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        if nodes := hash_orders(facts.script):
            also = _also(facts, nodes[1:])
            yield Note(
                nodes[0],
                f"the order of a set differs from process to process{also}: start with PYTHONHASHSEED=0, as below",
            )
        if nodes := address_orders(facts.script):
            also = _also(facts, nodes[1:])
            yield Note(
                nodes[0],
                f"a set of parameters or modules has the order of their addresses, another one on each rank{also}: "
                "walk over parameters() instead, above all where numbers are drawn",
            )


def _also(facts: Facts, nodes: list[ast.expr]) -> str:
    places = dict.fromkeys(facts.script.where(node) for node in nodes)
    return f" (also in {', '.join(places)})" if places else ""
