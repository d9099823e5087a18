"""DDP202: tests for the class DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import class_references, is_type_test
from dp2ddp.codemod.facts.pickled import may_hold_wrapper
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class DataParallelType(Rule):
    """Ask for the class that the model is wrapped in now.

    ## What it does
    Rewrites `isinstance(model, nn.DataParallel)`, also inside a tuple of classes, and `type(model) is nn.DataParallel`.

    ## Why
    The test would be false from now on, and `.module` would not be taken off before saving.

    ## Safety
    `hasattr(model, "module")` and the `module.` of checkpoint keys hold for the new wrapper as they are.

    ## References
    docs/semantics.md#wrapper.
    """

    code = "DDP202"
    name = "data-parallel-type"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch.nn as nn
                net = nn.DataParallel(net)
                if isinstance(net, (nn.DataParallel, nn.Sequential)):
                    net = net.module
            """,
            after="""
                import torch.nn as nn
                net = nn.DataParallel(net)
                if isinstance(net, (GraphDDP, nn.Sequential)):
                    net = net.module
            """,
        ),
        Untouched('import torch.nn as nn\nnet = net.module if hasattr(net, "module") else net'),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not any(not wrap.is_single for wrap in facts.all_wraps):
            return
        wrapper = "ReplicaDDP" if _loads_wrappers(facts) else strategy.wrapper  # what all wrappers are
        helper = facts.names.helper(wrapper)
        for reference in class_references(facts.script):
            if is_type_test(facts.script, reference):
                yield Replace(reference, helper, because="the class that the model is wrapped in now")
                yield Lift(wrapper, because="the class that the model is wrapped in now")


def _loads_wrappers(facts: Facts) -> bool:
    """Whether wrapped models come out of files, too: as GraphDDP, whatever the strategy."""
    loads = ((file.script, call) for file in facts.files for call in file.script.calls_of("torch.load"))
    return any(may_hold_wrapper(script, call, facts.all_wraps) for script, call in loads)
