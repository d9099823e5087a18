"""Use the rank's own GPU where the script names one by its number.

`"cuda:0"` becomes `"cuda"`, `.cuda(gpu)` becomes `.cuda()`: the start has set the rank's GPU, which these mean.
`torch.load(path)` gets a `map_location` that puts what lay on rank 0's GPU on the rank's own.

With the index, every rank would put its model on the first GPU; tensors are loaded to the GPU that they come from.

Another GPU than the model's may be model parallelism: a comment says so.

docs/idiomatic.md.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Edit, Finding, Hazard, Replace, SetArgument
from dp2ddp.codemod.idiomatic.new_names import names_cuda, remark, words_of
from dp2ddp.codemod.looks.devices import BECAUSE
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff
from dp2ddp.codemod.rules.ddp102_device_index import DeviceIndexed

MAPPED = "what lay on rank 0's GPU comes to the rank's own"


class OwnDevice(Rule):
    nodes = ("Arg", "Expr", "FormattedString", "SimpleString")
    examples = (
        diff("""
              import torch
            - device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
            - x = x.cuda(0)
            - weights = torch.load("net.pt")
            + device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            + x = x.cuda()
            + weights = torch.load("net.pt", map_location={"cuda:0": f"cuda:{local_rank}"})
        """),
        Untouched('import torch\nx = x.to("cuda")'),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for finding in DeviceIndexed().look(module):
            if isinstance(finding, Hazard):
                yield remark(module, finding.node, "another GPU than the model's: a rank has one")
            elif isinstance(finding, Edit) and finding.helpers:
                yield _own(module, finding.node)
            else:
                yield finding
        for call in module.calls if names_cuda(module.program) else ():
            is_mapped = call.may_have_more or call.argument(1, "map_location") is not None
            if call.name == "torch.load" and not is_mapped:
                code = f'{{"cuda:0": f"cuda:{{{words_of(module).index}}}"}}'
                yield SetArgument(call.node, "map_location", code, MAPPED)


def _own(module: Module, node: ast.AST) -> Finding:
    """`torch.device(gpu)` and `.to(gpu)`: what may be an index is the rank's device."""
    parent = module.parents[node]
    if isinstance(parent, ast.Call) and parent.func is node:
        return Replace(parent, f'{words_of(module)["torch"]}.device("cuda")', BECAUSE)
    return Replace(node, '"cuda"', BECAUSE)
