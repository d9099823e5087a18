"""DDP627: devices that the script chooses for all ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class VisibleDevicesInScript(CheckRule):
    """The script says which GPUs there are, to every rank alike.

    ## What it does
    Finds `os.environ["CUDA_VISIBLE_DEVICES"] = "..."`, a text, in a file that wraps a model or makes a process
    group.

    ## Why
    With one GPU in it all ranks share that one (NCCL refuses: "Duplicate GPU detected"). With several, a launch
    with another number of ranks, or on another machine, ends in "invalid device ordinal"; and what the
    scheduler chose is overwritten.

    ## Safety
    Values that are computed (from an argument, a rank) are left alone.

    ## References
    https://github.com/pytorch/examples/issues/885, https://github.com/Peterande/D-FINE/issues/289.
    """

    code = "DDP627"
    name = "visible-devices-in-script"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import os
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                os.environ["CUDA_VISIBLE_DEVICES"] = "0"
                model = DistributedDataParallel(net)
            """,
            message="all ranks share",
        ),
        Flags(
            before="""
                import os
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
                model = DistributedDataParallel(net)
            """,
            message="2 GPUs",
        ),
        Untouched("""
                import os
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus
                model = DistributedDataParallel(net)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not (script.wraps or script.groups):
            return
        for node in script.module.nodes(ast.Assign, ast.Call):
            owner, text = _chosen(node)
            if not text or script.module.name(owner) != "os.environ":
                continue
            count = len(text.split(","))
            what = f"any launch of this script sees these {count} GPUs, whatever it was given"
            yield Problem(
                node,
                what if count > 1 else "all ranks share this one GPU",
                "leave it out, and say it where the script is started: CUDA_VISIBLE_DEVICES=0,1 torchrun ...",
            )


def _chosen(node: ast.AST) -> tuple[ast.AST | None, str]:
    """Whose CUDA_VISIBLE_DEVICES is set, and to what; `setdefault` of several leaves the choice to the launch."""
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=owner, slice=ast.Constant(value="CUDA_VISIBLE_DEVICES"))],
            value=ast.Constant(value=str(text)),
        ):
            return owner, text
        case ast.Call(func=ast.Attribute(value=owner, attr="update"), keywords=keywords):
            given = {keyword.arg: keyword.value for keyword in keywords}
            value = given.get("CUDA_VISIBLE_DEVICES")
            return owner, value.value if isinstance(value, ast.Constant) and isinstance(
                value.value, str
            ) else ""
        case ast.Call(
            func=ast.Attribute(value=owner, attr="setdefault"),
            args=[ast.Constant(value="CUDA_VISIBLE_DEVICES"), ast.Constant(value=str(text))],
        ) if "," not in text:
            return owner, text
    return None, ""
