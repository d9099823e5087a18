"""DDP302: generators that nobody seeds."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.randomness import reseeds_from_outside, unseeded_generators
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class UnseededGenerator(Rule):
    """Make ranks draw the same numbers from generators without a seed.

    ## What it does
    `np.random.default_rng()`, `np.random.RandomState()` and `random.Random()` without a seed are made by rank 0
    and handed to all. Bytes and tokens of the operating system (os.urandom, secrets) are drawn once.

    ## Why
    Joining shares the states of torch, random and numpy. A generator object seeds itself from the operating system,
    and each rank's would be another one: other batches, other models.

    ## Safety
    `random.seed()`, `np.random.seed()` and `torch.seed()` without a number reseed a shared stream differently
    on every rank: a hazard. In a data set or a worker rank 0 reads for all instead (DDP306).

    ## References
    docs/semantics.md#unseeded.
    """

    code = "DDP302"
    name = "unseeded-generator"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import numpy as np
                import torch
                net = torch.nn.DataParallel(net)
                rng = np.random.default_rng()
                fixed = np.random.default_rng(7)
            """,
            after="""
                import numpy as np
                import torch
                net = torch.nn.DataParallel(net)
                rng = on_rank_zero(np.random.default_rng)
                fixed = np.random.default_rng(7)
            """,
        ),
        Flags(
            before="""
                import random
                import torch
                net = torch.nn.DataParallel(net)
                random.seed()
            """,
            message="random.seed()",
        ),
        Untouched(
            "import random\nimport torch\nnet = torch.nn.DataParallel(net)\nrandom.seed(0)\nx = random.random()"
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "every rank gets the generator of rank 0"
        for call in unseeded_generators(facts.script):
            if facts.places.of(call.node) is ExecutionPlace.MAIN:
                yield PassTo(call.node, facts.names.helper(strategy.helper("answer_of_rank_zero")), because)
                yield Lift(strategy.helper("answer_of_rank_zero"), because)
            elif not facts.is_of_rank_zero(call, strategy.shares):
                yield Hazard(call.node, f"{call.name}() is another generator on every rank", "give it a seed")
        for call in reseeds_from_outside(facts.script):
            if facts.is_of_rank_zero(call, strategy.shares):
                continue
            yield Hazard(
                call.node,
                f"{call.name}() without a number seeds every rank differently",
                "give it a number, or take the line out: the streams start anew in every run anyway",
            )
