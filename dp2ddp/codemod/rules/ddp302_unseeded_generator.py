"""DDP302: random numbers that the operating system seeds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, what_is
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.looks.seeds import may_be_none
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.rule import Finding, Flags, Rule, Untouched, call_by, diff

HELPERS = {Does.MAKE_STREAM: "ask_rank0", Does.SEED_BY_SYSTEM: "share_streams"}


class UnseededGenerator(Rule):
    """Seed alike what nobody seeds.

    ## What it does
    `np.random.default_rng()` becomes `ask_rank0(np.random.default_rng)`, `random.seed()` `share_streams(random.seed)`;
    the same where the seed may be None: an option without a default, or one whose default is None.

    ## Why
    Without a seed the operating system gives one, another to each rank.

    ## Safety
    A seed that must be a number elsewhere (`torch.manual_seed(seed)`, `seed + 1`) is one. A hazard for generators that
    nobody can seed (`random.SystemRandom`), and for `generator.seed()`.

    ## References
    docs/semantics.md#unseeded.
    """

    code = "DDP302"
    name = "unseeded-generator"
    nodes = ("Call",)
    examples = (
        diff("""
              import argparse
              import random
              import numpy as np
              parser = argparse.ArgumentParser()
              parser.add_argument("--seed", type=int)
              parser.add_argument("--split-seed", type=int, default=1)
              args = parser.parse_args()
            - rng = np.random.default_rng()
            - random.seed(args.seed)
            + rng = ask_rank0(np.random.default_rng)
            + share_streams(random.seed, args.seed)
              fixed = np.random.default_rng(7)
              split = random.Random(args.split_seed)
        """),
        Flags("import torch\ngenerator = torch.Generator()\ngenerator.seed()", "another seed on each rank"),
        Flags("import random\ndice = random.SystemRandom()", "draws from the operating system"),
        Flags('import torch\nnoise = open("/dev/urandom", "rb").read(4)', "draws from the operating system"),
        Untouched(
            """
                import random
                import numpy as np
                import torch
                def set_seed(seed):
                    random.seed(seed)
                    np.random.seed(seed)
                    torch.manual_seed(seed)
            """
        ),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            row = what_is(call.name)
            if row and row.does in HELPERS:
                given = call.argument(row.position, row.keyword)
                if call.may_have_more or given is None or may_be_none(module, given):
                    yield call_by(call.node, HELPERS[row.does], "all ranks draw what rank 0 draws")
            elif row and row.does is Does.DRAW_BY_SYSTEM:
                yield Hazard(
                    call.node,
                    f"{call.name} draws from the operating system: nobody can seed it",
                    "use random.Random",
                )
            elif call.name == "builtins.open" and _is_system_noise(call.argument(0, "file")):
                yield Hazard(
                    call.node, "this draws from the operating system: nobody can seed it", "use os.urandom(n)"
                )
            elif row is None and _seeds_generator(module, call):
                yield Hazard(
                    call.node,
                    f"{module.text(call.node)}: another seed on each rank",
                    "give it a number: manual_seed",
                )


def _is_system_noise(path: ast.expr | None) -> bool:
    return isinstance(path, ast.Constant) and path.value in ("/dev/urandom", "/dev/random")


def _seeds_generator(module: Module, call: Call) -> bool:
    """`torch.Generator().seed()`, directly or by a name."""
    if call.name is not None or method(call.method) is not MethodDoes.SEED or not call.is_bare:
        return False
    owners = module.values(getattr(call.node.func, "value", None))
    return any(module.name(getattr(owner, "func", None)) == "torch.Generator" for owner in owners)
