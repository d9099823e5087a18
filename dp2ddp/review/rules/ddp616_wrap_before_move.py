"""DDP616: a model that is moved after it was wrapped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

DEFAULT_DEVICE = re.compile("default_device|default_tensor_type")


class WrapBeforeMove(CheckRule):
    """The model is wrapped where it was made, and moved to its GPU afterwards.

    ## What it does
    Finds `DistributedDataParallel(Net()).cuda()`, and `.cuda()` on a wrapper whose model nothing has moved
    before.

    ## Why
    The wrapper builds its buckets, and broadcasts rank 0's parameters, for the device on which it finds the
    model. NCCL cannot do either for the CPU, and `device_ids` beside a model on the CPU is a ValueError.

    ## Safety
    Silent where the model is moved before anywhere in the file, made by a function of unknown result, or made
    under another default device.

    ## References
    https://github.com/pytorch/pytorch/issues/100243, https://github.com/pytorch/pytorch/issues/104336.
    """

    code = "DDP616"
    name = "wrap-before-move"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                class Net(Module):
                    pass
                model = DistributedDataParallel(Net()).cuda()
            """,
            message="before wrapping",
        ),
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                class Net(Module):
                    pass
                net = Net()
                model = DistributedDataParallel(net)
                model.cuda()
            """,
            message="before wrapping",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                class Net(Module):
                    pass
                model = DistributedDataParallel(Net().cuda())
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                class Net(Module):
                    pass
                net = Net()
                net.cuda()
                model = DistributedDataParallel(net)
                model.cuda()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if script.has_word(DEFAULT_DEVICE):
            return
        for call in script.module.calls:
            if not _moves_to_gpu(script, call):
                continue
            assert isinstance(call.node.func, ast.Attribute)
            owner = call.node.func.value
            wrap = next((wrap for wrap in script.wraps if wrap.node is owner), None) or script.wrap_behind(
                owner
            )
            module = wrap.argument(0, "module") if wrap else None
            if module is not None and _is_just_made(script, module):
                yield Problem(
                    call.node,
                    "moves the model after it was wrapped",
                    "move it to the rank's device before wrapping it: DistributedDataParallel(net.cuda(local_rank))",
                )


def _moves_to_gpu(script: DDPScript, call: Call) -> bool:
    device = call.argument(0, "device")
    if call.method == "cuda":
        return True
    return call.method == "to" and isinstance(value := literal(device), str) and value.startswith("cuda")


def _is_just_made(script: DDPScript, module: ast.expr) -> bool:
    """Whether a model is an instance of a class of this file, fresh from its constructor."""
    values = script.values_of(module)
    classes = [script.file.definition(value.func) for value in values if isinstance(value, ast.Call)]
    if (
        not values
        or len(classes) < len(values)
        or not all(isinstance(made, ast.ClassDef) for made in classes)
    ):
        return False
    if not isinstance(module, ast.Name):
        return True
    moves = (call for call in script.module.calls if call.method in ("cuda", "to"))
    owners = (call.node.func.value for call in moves if isinstance(call.node.func, ast.Attribute))
    wraps = {variable for wrap in script.wraps if (variable := script.variable_of(wrap.node))}
    variable = script.file.variable(module)
    return variable not in wraps and not any(
        isinstance(owner, ast.Name) and script.file.variable(owner) == variable for owner in owners
    )
