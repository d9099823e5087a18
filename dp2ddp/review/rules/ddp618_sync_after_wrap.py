"""Layers are put into the model after it was wrapped.

Finds `SyncBatchNorm.convert_sync_batchnorm` of a wrapper, and `model.module.head = Linear(...)`: a layer of torch's
that has parameters.

The wrapper has listed the layers' parameters and buffers when it was made. The new ones it does not know: the gradients
of a new layer are not summed, and each rank trains its own, which began with numbers of its own.

Found only where the name is certainly the wrapper, or the model inside, and nothing wraps `model.module` anew.

https://github.com/NVIDIA/apex/issues/109, https://github.com/NVIDIA/apex/issues/88.
"""

import ast
import re

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected

HAS_PARAMETERS = re.compile(
    r"torch\.nn\.(?:\w+\.)*(?:\w*Linear|Conv\w+|\w+Norm\w*|Embedding\w*|Parameter|LSTM|GRU|PReLU)$"
)


class SyncAfterWrap(CheckRule):
    message = "the model is wrapped already, and its wrapper will not know the new {what}"
    advice = "change the model before wrapping it"
    examples = (
        *corrected("""
            # before wrapping
              from torch.nn import SyncBatchNorm
            - model = DistributedDataParallel(net)
            - model = SyncBatchNorm.convert_sync_batchnorm(model)
            + net = SyncBatchNorm.convert_sync_batchnorm(net)
            + model = DistributedDataParallel(net)
        """),
        *corrected("""
            # before wrapping
            + net.head = torch.nn.Linear(512, 10).cuda()
              model = DistributedDataParallel(net.cuda())
            - model.module.head = torch.nn.Linear(512, 10).cuda()
        """),
    )

    def find(self, script: DDPScript) -> Found:
        for call in script.module.calls:
            module = call.argument(0, "module")
            if module is None or not (call.name or "").endswith("SyncBatchNorm.convert_sync_batchnorm"):
                continue
            if any(wrap.means(module) or wrap.call.node is module for wrap in script.wraps):
                yield self.problem(call.node, what="layers' buffers")
        if any(getattr(wrap.model, "attr", "") == "module" for wrap in script.wraps):
            return
        for node in script.module.all(ast.Assign) if script.wraps else ():
            match node.targets:
                case [ast.Attribute(value=owner)] if _makes_parameters(script, node.value):
                    if any(map(script.wrap_around, ast.walk(owner))):
                        yield self.problem(node, what="layer's parameters")


def _makes_parameters(script: DDPScript, value: ast.AST) -> bool:
    """`Linear(...)`, `Linear(...).cuda()`."""
    while isinstance(value, ast.Call):
        if HAS_PARAMETERS.match(script.module.name(value.func) or ""):
            return True
        value = getattr(value.func, "value", value.func)
    return False
