"""DDP610: ranks that all work on the first device."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

NAMES_A_DEVICE = re.compile(
    r"set_device|VISIBLE_DEVICES|device_ids|set_default_device|local_rank|slurm", re.I
)


class NoSetDevice(CheckRule):
    """No rank says which device is its own, so all of them work on GPU 0.

    ## What it does
    Finds a file that makes an NCCL group, moves things with `.cuda()` or `.to("cuda")`, and neither calls
    `set_device` nor names a device in any other way.

    ## Why
    `.cuda()` means the current device, which is 0 in every process until somebody sets it. NCCL refuses two
    ranks on one GPU ("Duplicate GPU detected"), or hangs.

    ## Safety
    Silent where CUDA_VISIBLE_DEVICES is written, a device has a number anywhere, or a function of another file
    may set it.

    ## References
    https://github.com/pytorch/pytorch/issues/50921, https://github.com/NVIDIA/apex/issues/222.
    """

    code = "DDP610"
    name = "no-set-device"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net.cuda())
            """,
            message="set_device",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                torch.cuda.set_device(dist.get_rank())
                model = DistributedDataParallel(net.cuda())
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net.cuda(rank), device_ids=[rank])
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if (
            not script.trains_on_ranks
            or script.is_converted
            or script.sets_up_elsewhere
            or script.has_word(NAMES_A_DEVICE)
            or any(script.file.calls_of("torch.cuda.device"))
        ):
            return
        if not any(literal(group.argument(0, "backend")) == "nccl" for group in script.groups):
            return
        moves = [call for call in script.module.calls if call.method in ("cuda", "to")]
        if any(_has_number(call) for call in moves):
            return
        move = next((call for call in moves if _is_current_device(call)), None)
        if move is not None:
            yield Problem(
                move.node,
                "moves to the current device, which is GPU 0 on every rank: nothing sets another",
                'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything else uses CUDA',
            )


def _is_current_device(call: Call) -> bool:
    return call.method == "cuda" and not call.node.args or literal(call.argument(0, "device")) == "cuda"


def _has_number(call: Call) -> bool:
    """Whether a move names a device by something else than the word for all of them."""
    device = call.argument(0, "device")
    return device is not None and literal(device) not in ("cuda", "cpu")
