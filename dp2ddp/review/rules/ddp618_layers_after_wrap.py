"""The model gets layers after it was wrapped, or layers that were frozen are trained.

Finds `SyncBatchNorm.convert_sync_batchnorm` of a wrapper; `model.module.head = Linear(...)`, `add_module`, and
`blocks.append(...)`, of layers that have parameters; and `requires_grad = True` for parts of a model behind its wrap,
in a function of the file, too, where something was frozen before it.

The wrapper has listed the parameters that are trained, and the buffers, when it was made. It does not know the others:
their gradients are not summed, and each rank trains its own layer, which may have begun with numbers of its own. Where
a layer takes the place of another, torch ends the second step, unless it searches for unused parameters.

Found only where the name is certainly the wrapper, or the model inside, and nothing wraps the model anew.

https://github.com/NVIDIA/apex/issues/109, https://github.com/NVIDIA/apex/issues/88.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.review.check_rule import (
    CheckRule,
    DDPScript,
    Found,
    Wrap,
    corrected,
    inside,
    unmoved,
    values_of,
)

ADDS = ("append", "extend", "insert", "add_module", "register_module", "register_parameter")

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
        for node, owner in _new_layers(script) if script.wraps else ():
            if _wrap_of_part(script, owner):
                yield self.problem(node, what="new layer's parameters")
        for owner, trains in script.told_to_train if script.wraps else ():
            wrap = _wrap_of_part(script, owner) if trains is True else None
            if wrap and any(_is_frozen_before(script, wrap, *each) for each in script.told_to_train):
                yield self.problem(owner, what="parameters that were frozen")


def _new_layers(script: DDPScript) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Where a layer with parameters becomes a part: `net.fc = Linear(2, 2)`, `blocks.append(Linear(2, 2))`."""
    for node in script.module.nodes(ast.Assign, ast.Call):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=owner) | ast.Subscript(value=owner)], value=layer):
                given = [layer]
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in ADDS:
                given = values_of(node)
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, _, layer]):
                given = [layer]
            case _:
                continue
        if any(_makes_parameters(script, each) for each in given):
            yield node, owner


def _wrap_of_part(script: DDPScript, part: ast.expr) -> Wrap | None:
    """The wrapper of a model that something behind it is a part of, and that no later wrapper wraps anew."""
    for whole in script.flow.wholes(part):
        if wrap := script.wrap_around(whole) or script.wrap_of(whole):
            same = {script.file.text_of(each) for each in (wrap.model, whole) if each is not None}
            later = (
                each for each in script.wraps if each is not wrap and each.call.node.lineno > part.lineno
            )
            models = [unmoved(each.model) for each in later if each.model]
            again = any(
                last_name(each) == "module" or script.file.text_of(each) in same for each in models if each
            )
            return None if again else wrap
    return None


def _is_frozen_before(script: DDPScript, wrap: Wrap, part: ast.expr, trains: object) -> bool:
    is_beside = script.file.function_of(part) is script.file.function_of(wrap.call.node)
    return trains is False and is_beside and part.lineno < wrap.call.node.lineno


def _makes_parameters(script: DDPScript, value: ast.AST) -> bool:
    """`Linear(...)`, `Sequential(ReLU(), Linear(...)).cuda()`, a layer of the file that makes such."""
    calls = (each for body in script.flow.runs(value) for each in inside(body, ast.Call))
    return isinstance(unmoved(value), ast.Call) and any(
        HAS_PARAMETERS.match(script.module.name(each.func) or "") for each in calls
    )
