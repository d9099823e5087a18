"""The model gets layers after it was wrapped, or layers that were frozen are trained.

Finds `SyncBatchNorm.convert_sync_batchnorm` of a wrapper, `model.module.head = Linear(...)` (a layer of torch's that
has parameters), and `requires_grad = True` for parts of a model behind its wrap, where something was frozen before it.

The wrapper has listed the parameters that are trained, and the buffers, when it was made. It does not know the others:
their gradients are not summed, and each rank trains its own layer, which may have begun with numbers of its own. Where
a layer takes the place of another, torch ends the second step, unless it searches for unused parameters.

Found only where the name is certainly the wrapper, or the model inside, and nothing wraps `model.module` anew.

https://github.com/NVIDIA/apex/issues/109, https://github.com/NVIDIA/apex/issues/88.
"""

import ast
import re

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, Wrap, corrected, unmoved

HAS_PARAMETERS = re.compile(
    r"torch\.nn\.(?:\w+\.)*(?:\w*Linear|Conv\w+|\w+Norm\w*|Embedding\w*|Parameter|LSTM|GRU|PReLU)$"
)


class LayersAfterWrap(CheckRule):
    message = "the model is wrapped already, and its wrapper will not know the {what}"
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
            if script.wrap_of(module) or any(wrap.call.node is module for wrap in script.wraps):
                yield self.problem(call.node, what="new layers' buffers")
        if any(getattr(wrap.model, "attr", "") == "module" for wrap in script.wraps):
            return
        for node in script.module.all(ast.Assign) if script.wraps else ():
            match node.targets:
                case [ast.Attribute(value=owner)] if _makes_parameters(script, node.value):
                    if _wrap_of_part(script, owner):
                        yield self.problem(node, what="new layer's parameters")
        for owner, trains in script.told_to_train if script.wraps else ():
            wrap = _wrap_of_part(script, owner) if trains is True else None
            if wrap and any(_is_frozen_before(script, wrap, *each) for each in script.told_to_train):
                yield self.problem(owner, what="parameters that were frozen")


def _wrap_of_part(script: DDPScript, part: ast.AST) -> Wrap | None:
    """The wrapper of a model that something behind it is a part of."""
    wraps = (script.wrap_around(whole) or script.wrap_of(whole) for whole in script.flow.wholes(part))
    return next(filter(None, wraps), None)


def _is_frozen_before(script: DDPScript, wrap: Wrap, part: ast.expr, trains: object) -> bool:
    is_beside = script.file.function_of(part) is script.file.function_of(wrap.call.node)
    return trains is False and is_beside and part.lineno < wrap.call.node.lineno


def _makes_parameters(script: DDPScript, value: ast.AST) -> bool:
    """`Linear(...)`, `Linear(...).cuda()`."""
    made = unmoved(value)
    return (
        isinstance(made, ast.Call) and HAS_PARAMETERS.match(script.module.name(made.func) or "") is not None
    )
