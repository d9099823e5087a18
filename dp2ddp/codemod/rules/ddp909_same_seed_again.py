"""DDP909: the same seed again and again while training."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, PassTo, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.seeds import seeds_of_first, seeds_to_tell
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class SameSeedAgain(Rule):
    """Begin all random streams anew where the same seed is set again.

    ## What it does
    `torch.manual_seed(0)` becomes `seed_again(torch.manual_seed, 0)` where it may be set to the same number twice: in a
    loop, or in a function that is called more than once. `torch.cuda.manual_seed(1)` becomes `seed_first_device(1)`
    where no seed of all devices beside it has the same number.

    ## Why
    On ranks > 0 what the model draws (dropout) comes from a stream of its own, which begins anew when the script
    sets a seed. A rank tells by the seed; the same seed with draws behind it looks like no new seed.

    ## Safety
    A seed that is set once is left alone, and so is one that each turn of the loop changes. `torch.cuda.manual_seed`
    seeds one device of DataParallel, and not the others: with the same seed of all devices beside it that makes no
    difference.

    ## References
    templates/replicas.py, DeviceStream; docs/semantics.md#device-streams.
    """

    code = "DDP909"
    name = "same-seed-again"
    nodes = ("Attribute", "Call", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                for epoch in range(3):
                    torch.manual_seed(0)
                    torch.cuda.manual_seed(0)
                    net(torch.randn(4, 2))
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                for epoch in range(3):
                    seed_again(torch.manual_seed, 0)
                    torch.cuda.manual_seed(0)
                    net(torch.randn(4, 2))
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                def set_seed(seed):
                    torch.manual_seed(seed)
                for epoch in range(3):
                    set_seed(args.seed)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                def set_seed(seed):
                    seed_again(torch.manual_seed, seed)
                for epoch in range(3):
                    set_seed(args.seed)
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                torch.manual_seed(1)
                torch.cuda.manual_seed(2)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                seed_again(torch.manual_seed, 1)
                seed_first_device(2)
            """,
        ),
        Untouched("""
            import torch
            def set_seed(seed):
                torch.manual_seed(seed)
            set_seed(args.seed)
            for epoch in range(3):
                torch.manual_seed(epoch)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted or not facts.all_wraps:
            return
        because = "the same seed may be set again: what replicas draw from begins anew, too"
        for call in seeds_to_tell(facts.modules, facts.script):
            if facts.places.of(call.node) is ExecutionPlace.MAIN and not strategy.draws_apart:
                helper = strategy.helper("seed_again")
                yield PassTo(call.node, facts.names.helper(helper), because)
                yield Lift(helper, because)
        because = "it seeds the first device alone, and what the other replicas draw from goes on"
        for call in seeds_of_first(facts.modules, facts.script):
            if (
                facts.places.of(call.node) is ExecutionPlace.MAIN
            ):  # in a forward, it is the replica's own device
                yield Replace(call.node.func, facts.names.helper("seed_first_device"), because)
                yield Lift("seed_first_device", because)
