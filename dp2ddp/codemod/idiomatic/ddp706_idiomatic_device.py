"""DDP706: devices that are named by an index."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.devices import BECAUSE
from dp2ddp.codemod.edits import Hazard, Replace
from dp2ddp.codemod.idiomatic.looking import last_word
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, remark, words_of
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched
from dp2ddp.codemod.rules.ddp102_device_index import DeviceIndexed


class OwnDevice(IdiomaticRule):
    """Use the rank's own GPU where the script names one by its number.

    ## What it does
    `"cuda:0"` becomes `"cuda"`, `.cuda(gpu)` becomes `.cuda()`: the start has set the rank's GPU, which these mean.
    `torch.cuda.device_count()` becomes the number of ranks.

    ## Why
    With the index, every rank would put its model on the first GPU.

    ## Safety
    Another GPU than the model's may be model parallelism: a comment says so.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP706"
    name = "idiomatic-device"
    nodes = ("Arg", "Expr", "FormattedString", "SimpleString")
    examples = (
        Rewrites(
            before="""
                import torch
                device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
                x = x.cuda(0)
            """,
            after="""
                import torch
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                x = x.cuda()
            """,
        ),
        Untouched('import torch\nx = x.to("cuda")'),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        for finding in DeviceIndexed().look(module):
            if isinstance(finding, Hazard):
                yield remark(module, finding.node, "another GPU than the model's: a rank has one")
            elif isinstance(finding, Change) and finding.helpers:
                yield _own(module, finding.edit.node)
            else:
                yield finding
        for call in module.calls:
            if does(call.name) is Does.COUNT_DEVICES and _counts_ranks(module, call.node):
                code = f"{words_of(module)['dist']}.get_world_size()"
                yield Change(Replace(call.node, code, "as many as there are ranks, on all nodes"), ("dist",))
        for keyword in module.all(ast.keyword):
            if keyword.arg == "device" and last_word(keyword.value) == "output_device":
                yield _own(module, keyword.value)


def _counts_ranks(module: Module, node: ast.Call) -> bool:
    """Whether all devices are meant (not whether there is one), behind the start."""
    match module.parents[node]:
        case (
            ast.Compare(comparators=[ast.Constant(value=0)])
            | ast.Compare(ops=[ast.GtE()], comparators=[ast.Constant(value=1)])
        ):
            return False
    return module is module.program.entry or module.function_around(node) is not None


def _own(module: Module, node: ast.AST) -> Change:
    """`torch.device(gpu)` and `.to(gpu)`: what may be an index is the rank's device."""
    parent = module.parents[node]
    if isinstance(parent, ast.Call) and parent.func is node:
        return Change(Replace(parent, f'{words_of(module)["torch"]}.device("cuda")', BECAUSE), ("torch",))
    return Change(Replace(node, '"cuda"', BECAUSE))
