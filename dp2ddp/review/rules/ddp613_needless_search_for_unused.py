"""DDP613: find_unused_parameters for a model that uses all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

# torchvision's models whose forward runs through all their layers (GoogLeNet and Inception have heads that it may skip)
IN_FULL = re.compile(
    r"torchvision\.models\.(?:\w+\.)?(?:(?:wide_)?resnet|resnext|vgg|alexnet|densenet|mobilenet|efficientnet"
    r"|convnext|squeezenet|shufflenet|regnet|mnasnet)\w*$"
)
FREEZES = re.compile("requires_grad")
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.With, ast.comprehension, ast.Lambda)
CUTS = ("detach", "data")  # gradients do not come through


class NeedlessSearchForUnused(CheckRule):
    """`find_unused_parameters=True` searches for what cannot be there, in every step.

    ## What it does
    Finds it for models of torchvision that use all their parameters in every forward, and for classes of the
    file whose forward runs straight through all their layers.

    ## Why
    Behind every forward the whole autograd graph is searched, and no gradient is sent before that; torch warns
    of it in the first step.

    ## Safety
    Silent where the file looks into `.module`, freezes parameters, or the forward has a branch, a loop, an index or
    a `detach`.

    ## References
    https://github.com/facebookresearch/swav/issues/63, https://github.com/m2lines/Samudra/issues/630.
    """

    code = "DDP613"
    name = "needless-search-for-unused"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                from torchvision.models import resnet50
                net = resnet50()
                model = DistributedDataParallel(net.cuda(rank), device_ids=[rank], find_unused_parameters=True)
            """,
            message="every step",
        ),
        Flags(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                from torch import nn
                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.one = nn.Linear(4, 4)
                        self.two = nn.Linear(4, 1)
                    def forward(self, x):
                        return self.two(self.one(x))
                model = DistributedDataParallel(Net(), find_unused_parameters=True)
            """,
            message="every step",
        ),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                from torch import nn
                class Net(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.one = nn.Linear(4, 4)
                        self.two = nn.Linear(4, 1)
                    def forward(self, x):
                        return self.two(self.one(x)) if self.training else self.one(x)
                model = DistributedDataParallel(Net(), find_unused_parameters=True)
        """),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                from torchvision.models import resnet50
                model = DistributedDataParallel(resnet50())
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if script.has_word(FREEZES) or _looks_inside(script):
            return
        for wrap in script.wraps:
            given = wrap.keyword("find_unused_parameters")
            module = wrap.argument(0, "module")
            if given is None or literal(given.value) is not True or module is None:
                continue
            makers = list(_makers(script, module))
            if makers and all(_uses_everything(script, maker) for maker in makers):
                yield Problem(
                    given.value,
                    "the model uses all its parameters, so this searches the graph in every step for nothing",
                    "leave find_unused_parameters out",
                )


def _looks_inside(script: DDPScript) -> bool:
    """`model.module.head`: what is done to it there, nobody knows."""
    mentions = script.module.by_word.get("module", ())
    parents = ((mention, script.module.parents[mention]) for mention in mentions)
    return any(
        isinstance(mention, ast.Attribute) and isinstance(parent, ast.Attribute)
        for mention, parent in parents
    )


def _makers(script: DDPScript, node: ast.AST, depth: int = 5) -> Iterator[ast.AST]:
    """The expressions that make a model, through `.cuda()`, `.to(device)`, names and SyncBatchNorm's conversion."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("cuda", "to")
    ):
        yield from _makers(script, node.func.value, depth)
    elif isinstance(node, ast.Name) and depth:
        for value in script.values_of(node):
            if not _is_moved_self(value, node.id) and not _is_wrap(script, value):
                yield from _makers(script, value, depth - 1)
    else:
        yield node


def _is_moved_self(value: ast.AST, name: str) -> bool:
    """`net = net.cuda()` says nothing new of what net is."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="cuda" | "to")):
            return owner == name
    return False


def _is_wrap(script: DDPScript, value: ast.AST) -> bool:
    return any(value is wrap.node for wrap in script.wraps)


def _uses_everything(script: DDPScript, maker: ast.AST) -> bool:
    if not isinstance(maker, ast.Call):
        return False
    if IN_FULL.match(script.module.name(maker.func) or ""):
        return True
    model = script.file.definition(maker.func)
    return isinstance(model, ast.ClassDef) and _runs_straight(script, model)


def _runs_straight(script: DDPScript, model: ast.ClassDef) -> bool:
    """Whether forward names every layer that the constructor makes, and nothing decides which of them run."""
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    bases = [script.module.name(base) for base in model.bases]
    if bases != ["torch.nn.Module"] or set(methods) != {"__init__", "forward"}:
        return False
    if any(isinstance(node, BRANCHES) for method in methods.values() for node in ast.walk(method)):
        return False
    if any(_leaves_something_out(node) for node in ast.walk(methods["forward"])):
        return False
    made, named = (_own_attributes(methods[name]) for name in ("__init__", "forward"))
    return bool(made) and made <= named


def _leaves_something_out(node: ast.AST) -> bool:
    """`self.experts[i]`, `x.detach()`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and not isinstance(node.slice, ast.Constant)
    return isinstance(node, ast.Attribute) and node.attr in CUTS


def _own_attributes(method: ast.FunctionDef) -> set[str]:
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
