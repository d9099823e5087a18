"""DDP709: tests for the class DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import class_references, is_type_test
from dp2ddp.codemod.idiomatic.process_names import ProcessNames
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class WrapperType(Rule):
    """Ask for the class that the model is wrapped in now.

    ## What it does
    `isinstance(model, nn.DataParallel)` asks for DistributedDataParallel.

    ## Why
    The test would be false from now on, and `.module` would not be taken off before saving.

    ## Safety
    `hasattr(model, "module")` holds as it is.

    ## References
    docs/semantics.md#wrapper; docs/idiomatic.md.
    """

    code = "DDP709"
    name = "idiomatic-wrapper-type"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch.nn as nn
                net = nn.DataParallel(net)
                if isinstance(net, nn.DataParallel):
                    net = net.module
            """,
            after="""
                import torch.nn as nn
                net = nn.DataParallel(net)
                if isinstance(net, DDP):
                    net = net.module
            """,
        ),
        Untouched('import torch.nn as nn\nnet = net.module if hasattr(net, "module") else net'),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not any(not wrap.is_single for wrap in facts.all_wraps):
            return
        words, because = ProcessNames(facts), "the class that the model is wrapped in now"
        for reference in class_references(facts.script):
            if is_type_test(facts.script, reference):
                yield Replace(reference, words.wrapper, because)
                yield words.wrapper_import(because)
