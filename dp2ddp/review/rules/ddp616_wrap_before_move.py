"""The model is wrapped where it was made, and moved to its GPU afterwards.

Finds `DistributedDataParallel(Net()).cuda()`, and `.cuda()` on a wrapper whose model nothing has moved before.

The wrapper builds its buckets, and broadcasts rank 0's parameters, for the device on which it finds the model. NCCL
cannot do either for the CPU, and `device_ids` beside a model on the CPU is a ValueError.

Silent where the model is moved before anywhere in the file, made by a function of unknown result, or made under another
default device.

https://github.com/pytorch/pytorch/issues/100243, https://github.com/pytorch/pytorch/issues/104336.
"""

import ast
import re

from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected, literal

DEFAULT_DEVICE = re.compile("default_device|default_tensor_type")


class WrapBeforeMove(CheckRule):
    message = "moves the model after it was wrapped"
    advice = "move it to the rank's device before wrapping it: DistributedDataParallel(net.cuda(local_rank))"
    examples = corrected("""
        # before wrapping
          class Net(Module):
              pass
          net = Net()
        + net.cuda()
          model = DistributedDataParallel(net)
          model.cuda()
    """)

    def find(self, script: DDPScript) -> Found:
        for call in script.module.calls if script.wraps and not script.file.says(DEFAULT_DEVICE) else ():
            owner = getattr(call.node.func, "value", None)
            if not _moves_to_gpu(call) or owner is None:
                continue
            made_here = next((wrap for wrap in script.wraps if wrap.call.node is owner), None)
            wrap = made_here or script.wrap_of(owner)
            if wrap and wrap.model is not None and _is_just_made(script, wrap.model):
                yield self.problem(call.node)


def _moves_to_gpu(call: Call) -> bool:
    """`.cuda()`, `.to("cuda")`."""
    device = call.argument(0, "device") if call.method == "to" else None
    return call.method == "cuda" or str(literal(device)).startswith("cuda")


def _is_just_made(script: DDPScript, module: ast.expr) -> bool:
    """Whether a model is an instance of a class of this file, fresh from its constructor."""
    values = script.file.values(module)
    classes = [script.file.definition(getattr(value, "func", value)) for value in values]
    if not values or not all(isinstance(made, ast.ClassDef) for made in classes):
        return False
    moves = (call.node.func for call in script.module.calls if call.method in ("cuda", "to"))
    owners = {script.file.text_of(move.value) for move in moves if isinstance(move, ast.Attribute)}
    return not isinstance(module, ast.Name) or module.id not in owners
