"""DDP102: devices that are named by an index."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Hazard, Remove, Replace
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.small.rule import Change, Finding, Rule, rename

BECAUSE = "the rank's own device"
INDEX = re.compile(
    r"gpu|device_?ids?\b|local_rank|cuda_?id", re.IGNORECASE
)  # what names of indices look like
TEXT = re.compile(r"cuda:\d+")


class DeviceIndexed(Rule):
    """Use the rank's own device where the script names one by its number.

    ## What it does
    `"cuda:0"` becomes `"cuda"`, `.cuda(gpu)` becomes `.cuda()`, `.to(0)` becomes `.to("cuda")`; what may be an index is
    asked at run time (`own_device(gpu)`). `torch.cuda.set_device(...)` goes: joining has set the rank's device.

    ## Why
    With the index, every rank would put its model on the first GPU.

    ## Safety
    An index that is neither `device_ids[0]` nor `output_device` may be model parallelism: a hazard.
    """

    code = "DDP102"
    name = "device-index"
    nodes = ("Arg", "Expr", "FormattedString", "SimpleString")
    examples = ()

    def look(self, module: Module) -> Iterator[Finding]:
        homes = home_indices(module)
        for node in _texts(module):
            yield from _checked(module, node, homes)
            quote = "'" if module.text(node).lstrip("fFrRbBuU(").startswith("'") else '"'
            yield Change(Replace(node, f"{quote}cuda{quote}", BECAUSE))
        for call in module.calls:
            yield from _of_call(module, call, homes)


def home_indices(module: Module) -> set[int]:
    """The devices that DataParallel keeps models on: the first of `device_ids`, and `output_device`."""
    indices = set()
    for each in module.program.modules:
        for call in each.calls:
            if does(call.name) is Does.WRAP:
                ids, output = call.argument(1, "device_ids"), call.argument(2, "output_device")
                match ids:
                    case ast.List(elts=[ast.Constant(value=int(index)), *_]):
                        indices.add(index)
                match output:
                    case ast.Constant(value=int(index)):
                        indices.add(index)
    return indices or {0}


def _texts(module: Module) -> Iterator[ast.expr]:
    """ "cuda:0", f"cuda:{gpu}", "cuda:%d" % gpu, "cuda:" + str(gpu), "cuda:{}".format(gpu)."""
    for constant in module.all(ast.Constant):
        parent = module.parents.get(constant)
        is_key = isinstance(parent, ast.Dict) and constant in parent.keys
        if is_key or isinstance(parent, (ast.Expr, ast.JoinedStr)):
            continue
        if isinstance(constant.value, str) and TEXT.fullmatch(constant.value):
            yield constant
    for text in module.all(ast.JoinedStr):
        match text.values:
            case [ast.Constant(value="cuda:"), ast.FormattedValue()]:
                yield text
    for sum_ in module.all(ast.BinOp):
        match sum_:
            case ast.BinOp(
                left=ast.Constant(value="cuda:" | "cuda:%d" | "cuda:%s"), op=ast.Mod() | ast.Add()
            ):
                yield sum_
    for call in module.all(ast.Call):
        match call.func:
            case ast.Attribute(value=ast.Constant(value=str(said)), attr="format"):
                if re.fullmatch(r"cuda:\{\w*\}", said):
                    yield call


def _of_call(module: Module, call: Call, homes: set[int]) -> Iterator[Finding]:
    kind, given = does(call.name), call.keyword("device")
    device = call.argument(0, "device")
    if kind is Does.SET_DEVICE:
        yield from _without_setting(module, call)
    elif call.method == "cuda" and device is not None and not (call.name or "").startswith("torch."):
        if not _is_truth(device):
            yield from _checked(module, device, homes)
            yield Change(DropArgument(given or device, call.node, BECAUSE))
    elif kind is Does.MAKE_DEVICE and (
        len(call.node.args) > 1 or device is not None and may_be_index(device)
    ):
        for argument in call.node.args:
            yield from _checked(module, argument, homes)
        if call.name == "torch.device":
            yield rename(call.node.func, "own_device", BECAUSE)
        elif device is not None:
            yield Change(Replace(device, '"cuda"', BECAUSE))
    elif call.method == "to" and device is not None and may_be_index(device):
        yield from _checked(module, device, homes)
        yield _own(device)
    elif given is not None and may_be_index(given.value):
        yield from _checked(module, given.value, homes)
        yield _own(given.value)


def _own(node: ast.expr) -> Change:
    if isinstance(node, ast.Constant):
        return Change(Replace(node, '"cuda"', BECAUSE))
    return Change(Replace(node, "own_device({device})", BECAUSE, {"device": node}), ("own_device",))


def _checked(module: Module, node: ast.expr, homes: set[int]) -> Iterator[Finding]:
    """A hazard where an index is another than the model's."""
    match node:
        case ast.Constant(value=str(text)) if TEXT.fullmatch(text):
            index = int(text[5:])
        case ast.Constant(value=int(index)) if not isinstance(index, bool):
            pass
        case _:
            return
    if index not in homes:
        yield Hazard(
            node,
            f"device {index} is not the one that DataParallel keeps the model on",
            "a rank has one device: if the model is spread over devices, keep this script on DataParallel",
        )


def _without_setting(module: Module, call: Call) -> Iterator[Finding]:
    statement = module.parents[call.node]
    if isinstance(statement, ast.Expr):
        yield Change(Remove(statement, "joining has set the rank's device"))
    else:
        yield Hazard(call.node, "set_device() is part of an expression", "give it a line of its own")


def _is_truth(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def may_be_index(node: ast.expr) -> bool:
    """Whether an argument may name a device by its number."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and bool(
        INDEX.search(ast.unparse(node))
    )
