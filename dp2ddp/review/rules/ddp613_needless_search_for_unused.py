"""`find_unused_parameters=True` searches for what cannot be there, in every step.

Finds it for models of torchvision that use all their parameters in every forward, and for classes of the file whose
forward runs straight through all their layers.

Behind every forward the whole autograd graph is searched, and no gradient is sent before that; torch warns of it in the
first step.

Silent where the file looks into `.module`, freezes parameters, or the forward has a branch, a loop, an index or a
`detach`.

https://github.com/facebookresearch/swav/issues/63, https://github.com/m2lines/Samudra/issues/630.
"""

import ast
import re

from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, inside, literal

# torchvision's models whose forward runs through all their layers (GoogLeNet and Inception have heads that it may skip)
IN_FULL = re.compile(
    r"torchvision\.models\.(?:\w+\.)?(?:(?:wide_)?resnet|resnext|vgg|alexnet|densenet|mobilenet|efficientnet"
    r"|convnext|squeezenet|shufflenet|regnet|mnasnet)\w*$"
)
FREEZES = re.compile("requires_grad")
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.Try,
    ast.With,
    ast.comprehension,
    ast.Lambda,
    ast.Subscript,
)
CUTS = ("detach", "data")


class NeedlessSearchForUnused(CheckWarning):
    message = "the model uses all its parameters, so this searches the graph in every step for nothing"
    advice = "leave find_unused_parameters out"
    examples = corrected("""
        # every step
          from torchvision.models import resnet50
          net = resnet50().cuda(rank)
        - model = DistributedDataParallel(net, device_ids=[rank], find_unused_parameters=True)
        + model = DistributedDataParallel(net, device_ids=[rank])
    """)

    def find(self, script: DDPScript) -> Found:
        if script.file.says(FREEZES) or _looks_inside(script):
            return
        for wrap in script.wraps:
            given = wrap.call.keyword("find_unused_parameters")
            if given is None or literal(given.value) is not True or wrap.model is None:
                continue
            makers = script.file.makers(wrap.model)
            if makers and all(_uses_everything(script, maker) for maker in makers):
                yield self.problem(given.value)


def _looks_inside(script: DDPScript) -> bool:
    """`model.module.head`: what is done to it there, nobody knows."""
    mentions = (each for each in script.module.by_word.get("module", ()) if isinstance(each, ast.Attribute))
    return any(isinstance(script.module.parents[each], ast.Attribute) for each in mentions)


def _uses_everything(script: DDPScript, maker: ast.AST) -> bool:
    made = maker.func if isinstance(maker, ast.Call) else maker
    model = script.file.definition(made)
    is_known = IN_FULL.match(script.module.name(made) or "") is not None
    return is_known or isinstance(model, ast.ClassDef) and _runs_straight(script, model)


def _runs_straight(script: DDPScript, model: ast.ClassDef) -> bool:
    """Whether forward names every layer that the constructor makes, and nothing decides which of them run."""
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    is_plain = [script.module.name(base) for base in model.bases] == ["torch.nn.Module"]
    if not is_plain or methods.keys() != {"__init__", "forward"}:
        return False
    branches = (isinstance(node, BRANCHES) or last_name(node) in CUTS for node in ast.walk(model))
    attributes = ([*inside(methods[name], ast.Attribute)] for name in ("__init__", "forward"))
    made, named = ({each.attr for each in found if last_name(each.value) == "self"} for found in attributes)
    return not any(branches) and bool(made) and made <= named
