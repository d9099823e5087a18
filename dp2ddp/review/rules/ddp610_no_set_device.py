"""No rank says which device is its own, so all of them work on GPU 0.

Finds a file that makes an NCCL group, moves things with `.cuda()` or `.to("cuda")`, and neither calls `set_device` nor
names a device in any other way.

`.cuda()` means the current device, which is 0 in every process until somebody sets it. NCCL refuses two ranks on one
GPU ("Duplicate GPU detected"), or hangs.

Silent where CUDA_VISIBLE_DEVICES is written, a device has a number anywhere, or a function of another file may set it.

https://github.com/pytorch/pytorch/issues/50921, https://github.com/NVIDIA/apex/issues/222.
"""

import ast
import re

from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected, literal

NAMES_A_DEVICE = re.compile(
    r"set_device|VISIBLE_DEVICES|device_ids|set_default_device|local_rank|slurm", re.IGNORECASE
)


class NoSetDevice(CheckRule):
    message = "moves to the current device, which is GPU 0 on every rank: nothing sets another"
    advice = 'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything else uses CUDA'
    examples = corrected("""
        # set_device
        + torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
          model = DistributedDataParallel(net.cuda())
    """)

    def find(self, script: DDPScript) -> Found:
        sets_up = script.is_converted or script.sets_up_elsewhere or script.file.says(NAMES_A_DEVICE)
        if not script.trains_on_ranks or not script.has_nccl or sets_up:
            return
        if any(script.file.calls_of("torch.cuda.device")):
            return
        moves = [call for call in script.module.calls if call.method in ("cuda", "to")]
        current = [call for call in moves if _words(script, call) & {"", "cuda"}]
        if current and all(_words(script, call) <= {"", "cuda", "cpu"} for call in moves):
            yield self.problem(current[0].node)


def _words(script: DDPScript, move: Call) -> set[object]:
    """What `.to("cuda")` says, or what a name there may stand for; "" for `.cuda()`, None where nobody knows."""
    given = move.argument(0, "device")
    if given is None:
        return {"" if move.method == "cuda" else None}
    makers = script.file.values(given)
    devices = [_device(script, each) for each in makers]
    return {literal(value) for each in devices for value in script.file.values(each)} or {None}


def _device(script: DDPScript, value: ast.AST) -> ast.AST:
    """`"cuda"` of `torch.device("cuda")`."""
    is_device = isinstance(value, ast.Call) and script.module.name(value.func) == "torch.device"
    return value.args[0] if is_device and len(value.args) == 1 else value  # type: ignore[attr-defined]
