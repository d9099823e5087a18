"""Use the rank's own device where the script names one by its number, and count the ranks where it counts devices.

`"cuda:0"` becomes `"cuda"`, `.cuda(gpu)` becomes `.cuda()`, `.to(0)` becomes `.to("cuda")`, also under other names
(`self.place = gpu`); what only may be a number is asked at run time (`own_device(gpu)`). A device that a tensor's is
compared with has its number again: `x.device == numbered_device(device)`.
`torch.cuda.set_device(...)` goes: joining has set the rank's device. `torch.cuda.device_count()` becomes
`count_ranks()`.

With the number, every rank would put its model on the first GPU. The number that DataParallel splits a batch by is the
number of ranks, whatever a rank sees of the devices.

The device meant is `device_ids[0]`, where DataParallel keeps the model, or `output_device`. Any other number, and a
second name of one, may be model parallelism: a hazard. What shows such a number, or the device, stays: a note. Whether
there is any GPU (`device_count() >= 1`, `if not device_count():`) is asked as before.

torch.cuda.set_device; docs/semantics.md#first-device, docs/semantics.md#device-ids, docs/semantics.md#device-count.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note, Replace
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.devices import Devices, Use, compared_device, devices_of, shown_devices, uses
from dp2ddp.codemod.looks.mentions import handed_on
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, diff, flags, rename

SPREAD = "a rank has one device: if the model is spread over devices, keep this script on DataParallel"

OTHER = Reason("other-device", "device {number} is not the one that DataParallel keeps the model on", SPREAD)
MAY_BE_OTHER = Reason("second-device", "device {own} may be another one than {first}", SPREAD)
SHOWN = Reason("shows-device", "shows `{code}`: every rank uses a device of its own, `cuda` without a number")
COMPARED = "a tensor's device has its number"
COUNTED = Reason("device-count", "the number of devices is the number of ranks")
# `device_count() > 0` and the like ask whether there is any: that needs no change.
ASKS_FOR_ANY = {(ast.Gt, 0), (ast.GtE, 1), (ast.NotEq, 0), (ast.Eq, 0), (ast.Lt, 1), (ast.LtE, 0)}


class DeviceIndexed(Rule):
    examples = (
        diff("""
              import torch
            - torch.cuda.set_device(args.gpu)
            - device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
            - mean = mean.to(args.gpu if args.cuda else "cpu")
            - if torch.cuda.device_count() > 1:
            -     net = torch.nn.DataParallel(net, device_ids=[args.gpu, 1]).cuda(args.gpu)
            - assert mean.device == device
            + device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            + mean = mean.to(own_device(args.gpu if args.cuda else "cpu"))
            + if count_ranks() > 1:
            +     net = torch.nn.DataParallel(net, device_ids=[args.gpu, 1]).cuda()
            + assert mean.device == numbered_device(device)
        """),
        flags("""
            # device 1 is not the one that DataParallel keeps the model on
            import torch
            net = torch.nn.DataParallel(net).cuda(0)
            head = head.to("cuda:1")
        """),
        Untouched("""
            import torch
            assert torch.cuda.device_count() >= 1, "needs a GPU"
            net = torch.nn.DataParallel(net).cuda().to(device)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        yield from by_number(module)
        counts = [each.node for each in module.calls if does(each.name) is Does.COUNT_DEVICES]
        called = [each.func for each in counts if not asks_for_any(module, each)]
        for node in (*called, *(each for each, _ in handed_on(module, Does.COUNT_DEVICES))):
            yield rename(node, "count_ranks", COUNTED)


def by_number(module: Module) -> Iterator[Finding]:
    """Devices that are named by their numbers, or shown."""
    devices = devices_of(module.program)
    for use in uses(module, devices):
        why = _is_another(module, devices, use)
        yield Hazard(use.node, why) if why else use.own
    for node in module.nodes(ast.Compare):
        if device := compared_device(module, node, devices):
            holes = {"device": device}
            yield Replace(device, "numbered_device({device})", COMPARED, holes, helpers=("numbered_device",))
    for call, device in shown_devices(module, devices):
        yield Note(call, SHOWN.of(code=ast.unparse(device)))


def _is_another(module: Module, devices: Devices, use: Use) -> Reason | None:
    others = devices.others(module, use.index) if use.index is not None else set()
    number = next((each for each in others if isinstance(each, int)), None)
    if number is not None:
        return OTHER.of(number=number)
    first = min(map(str, devices.named_elsewhere), default=None)
    own = next((str(each) for each in others if str(each) != first), None)
    return MAY_BE_OTHER.of(own=own, first=first) if own and first else None


def asks_for_any(module: Module, node: ast.AST) -> bool:
    """Whether a number is asked only whether it is zero."""
    match module.parents[node]:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=value)]) if left is node:
            return (type(op), value) in ASKS_FOR_ANY
        case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
            return True
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
            return test is node
    return False
