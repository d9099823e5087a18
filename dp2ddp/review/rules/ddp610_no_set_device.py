"""No rank says which device is its own, so all of them work on GPU 0; or all name the same one.

Finds a file that makes an NCCL group, moves things with `.cuda()` or `.to("cuda")`, and neither calls `set_device` nor
names a device in any other way. And `.to("cuda:0")`, `device="cuda:0"`, `device_ids=[0]` where every rank is certain
to come by, if that is the only number in the file.

`.cuda()` means the current device, which is 0 in every process until somebody sets it. NCCL refuses two ranks on one
GPU ("Duplicate GPU detected"), or hangs.

Silent where a launcher may show each rank one GPU (CUDA_VISIBLE_DEVICES and Slurm are named), and where a function of
another file may set the device.

https://github.com/pytorch/pytorch/issues/50921, https://github.com/NVIDIA/apex/issues/222.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected, literal

SHOWS_ONE = re.compile(r"VISIBLE_DEVICES|slurm", re.IGNORECASE)
NAMES_A_DEVICE = re.compile(r"set_device|device_ids|set_default_device|local_rank", re.IGNORECASE)
CURRENT = "moves to the current device, which is GPU 0 on every rank: nothing sets another"
SET = 'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything else uses CUDA'
NAMED = "names GPU {number}, so every rank works on that one"
NAME_OWN = 'name the rank\'s own: torch.device("cuda", int(os.environ["LOCAL_RANK"]))'
Use = tuple[ast.expr, set[object]]


class NoSetDevice(CheckRule):
    message = "{what}"
    advice = "{how}"
    examples = (
        *corrected("""
            # set_device
            + torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
              model = DistributedDataParallel(net.cuda())
        """),
        *corrected("""
            # GPU 0
            - model = DistributedDataParallel(net.to("cuda:0"))
            + model = DistributedDataParallel(net.to(f"cuda:{local_rank}"))
        """),
    )

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks or script.is_converted or script.file.says(SHOWS_ONE):
            return
        used = [*_used(script)]
        if named := next(_named(script, used), None):
            yield self.problem(named[0], what=NAMED.format(number=named[1]), how=NAME_OWN)
        current = [node for node, devices in used if "cuda" in devices]
        is_set = script.sets_up_elsewhere or script.file.says(NAMES_A_DEVICE) or not script.has_nccl
        if current and not is_set and all(devices <= {"cuda", "cpu"} for _, devices in used):
            yield self.problem(current[0], what=CURRENT, how=SET)


def _named(script: DDPScript, used: Sequence[Use]) -> Iterator[tuple[ast.expr, int]]:
    """Where every rank uses a device by its number, which is the only one in the file."""
    numbers = {each for _, devices in used for each in devices if isinstance(each, int)}
    is_gloo = any(literal(each.argument(0, "backend")) == "gloo" for each in script.groups)
    for node, devices in used if len(numbers) == 1 and not is_gloo else ():
        if devices - {"cpu"} == numbers and script.ranks.at(node).are_all:
            yield node, min(numbers)


def _used(script: DDPScript) -> Iterator[Use]:
    """Where things are moved to a device, or made there, and what devices these may be."""
    for call in script.module.calls:
        given = call.argument(0, "device")
        if call.method == "cuda" and given is None:
            yield call.node, {"cuda"}
        elif (
            call.method in ("to", "cuda", "set_device")
            or call.keyword("device")
            or call.name == "torch.cuda.device"
        ):
            yield call.node, script.devices(given)
    ids = (wrap.call.argument(1, "device_ids") for wrap in script.wraps)
    yield from ((each, script.devices(each)) for one in ids if isinstance(one, ast.List) for each in one.elts)
