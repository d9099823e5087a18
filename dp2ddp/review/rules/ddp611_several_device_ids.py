"""DDP611: a wrapper that is given several devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class SeveralDeviceIds(CheckRule):
    """DistributedDataParallel takes one device: several are refused.

    ## What it does
    Finds `device_ids` with two devices or more, or with all that there are.

    ## Why
    One process drove several devices with the first versions only; torch raises "device_ids can only be None or
    contain a single element" since 1.9.

    ## Safety
    Found where the list can be read off, itself or by a name that is bound to nothing else.

    ## References
    https://github.com/pytorch/examples/issues/936, https://github.com/pytorch/pytorch/pull/54454.
    """

    code = "DDP611"
    name = "several-device-ids"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                model = DistributedDataParallel(net, device_ids=[0, 1])
            """,
            message="one device",
        ),
        Flags(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                import torch
                ids = list(range(torch.cuda.device_count()))
                model = DistributedDataParallel(net, device_ids=ids)
            """,
            message="one device",
        ),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                model = DistributedDataParallel(net, device_ids=[rank])
        """),
        Untouched("""
                from torch.nn.parallel import DistributedDataParallel
                model = DistributedDataParallel(net)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        for wrap in script.wraps:
            ids = wrap.argument(1, "device_ids")
            values = script.values_of(ids) if ids is not None else []
            if ids is not None and values and all(_are_several(script, value) for value in values):
                yield Problem(
                    ids,
                    "takes one device, and refuses several",
                    "start a process for each device, and pass device_ids=[local_rank]",
                )


def _are_several(script: DDPScript, value: ast.AST) -> bool:
    if isinstance(value, (ast.List, ast.Tuple)):
        return len(value.elts) > 1
    if isinstance(value, ast.Call) and len(value.args) == 1:
        name, inner = script.module.name(value.func), value.args[0]
        if name == "builtins.list":
            return _are_several(script, inner)
        called = script.module.name(inner.func) if isinstance(inner, ast.Call) else None
        return name == "builtins.range" and called == "torch.cuda.device_count"
    return False
