"""DDP302: random numbers that the operating system seeds."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.small.rule import Finding, Rule, call_by

HELPERS = {Does.MAKE_STREAM: "ask_rank0", Does.SEED_BY_SYSTEM: "share_streams"}


class UnseededGenerator(Rule):
    """Seed alike what nobody seeds.

    ## What it does
    `np.random.default_rng()` becomes `ask_rank0(np.random.default_rng)`, `random.seed()` `share_streams(random.seed)`.

    ## Why
    Without a seed the operating system gives one, another to each rank.
    """

    code = "DDP302"
    name = "unseeded-generator"
    nodes = ("Call",)
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            kind = does(call.name)
            if kind in HELPERS and call.is_bare:
                yield call_by(call.node, HELPERS[kind], "all ranks draw what rank 0 draws")
