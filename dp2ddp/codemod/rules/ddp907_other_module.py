"""DDP907: what other modules of the project do."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class OtherModule(Rule):
    """Say what other modules of the project do that a conversion would have to change.

    ## What it does
    A hazard for every line in a local module, reached from this script, that wraps a model, names a device by
    its index, writes files or asks a clock.

    ## Why
    Only the script is converted here. What such a line does once, W ranks would do W times.

    ## Safety
    Only functions and classes are looked at whose names are mentioned where the script can reach them.

    ## References
    IDIOMS: loaders in another file 22, training loops 14 of 95 repositories.
    """

    code = "DDP907"
    name = "other-module"
    examples = (
        Flags(
            before="""
                import torch
                from helpers import prepare
                prepare()
                net = torch.nn.DataParallel(net)
            """,
            message="os.mkdir()",
            module="""
                import os
                def prepare():
                    os.mkdir("out")
                def unused():
                    os.mkdir("elsewhere")
            """,
        ),
        Untouched("import torch\nfrom helpers import Net\nnet = torch.nn.DataParallel(Net())"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for found in facts.elsewhere:
            yield Hazard(
                found.node,
                found.what,
                "convert this line by hand (see `dp2ddp rules`), or move it into the script",
                file=found.file,
            )
