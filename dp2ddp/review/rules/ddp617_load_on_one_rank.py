"""DDP617: weights that one rank alone loads into a wrapped model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level

SENDS = re.compile("broadcast(?!_buffers)|sync_module|sync_param")


class LoadOnOneRank(CheckRule):
    """One rank alone loads weights into a model that is wrapped already.

    ## What it does
    Finds `load_state_dict` on a wrapper, or on the model inside, under `if rank == 0:`.

    ## Why
    The wrapper sends rank 0's parameters to the others once, when it is made. Whatever is loaded afterwards
    stays where it was loaded, and the ranks train different models.

    ## Safety
    Silent where the file broadcasts or synchronizes anything itself.

    ## References
    https://github.com/Metta-AI/metta/pull/1882, https://github.com/pytorch/pytorch/issues/111138.
    """

    code = "DDP617"
    name = "load-on-one-rank"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                model = DistributedDataParallel(net)
                if dist.get_rank() == 0:
                    model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
            """,
            message="other ranks",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                if dist.get_rank() == 0:
                    net.load_state_dict(torch.load("last.pt", map_location="cpu"))
                model = DistributedDataParallel(net)
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                model = DistributedDataParallel(net)
                model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if any(map(SENDS.search, script.module.by_word)):  # no keyword: `broadcast_buffers=` sends no weights
            return
        for call in script.module.calls:
            condition = script.ranks.one_rank_condition(call.node)
            if call.method != "load_state_dict" or condition is None:
                continue
            assert isinstance(call.node.func, ast.Attribute)
            owner = call.node.func.value
            if isinstance(owner, ast.Attribute) and owner.attr == "module":
                owner = owner.value
            in_converted = script.ranks.asks_now(condition.test) and script.wrap_behind(
                owner, script.whole_batch_wraps
            )
            if in_converted or script.wrap_behind(owner) is not None:
                yield Problem(
                    call.node,
                    "one rank alone loads these weights: the other ranks keep what they had when the model was wrapped",
                    "load on every rank, or on rank 0 before wrapping",
                )
