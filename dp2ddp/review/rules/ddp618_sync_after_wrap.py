"""DDP618: SyncBatchNorm put into a model that is wrapped already."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class SyncAfterWrap(CheckRule):
    """SyncBatchNorm is put into the model after it was wrapped.

    ## What it does
    Finds `SyncBatchNorm.convert_sync_batchnorm` of a wrapper.

    ## Why
    The wrapper has listed the layers' buffers when it was made. The new layers have buffers of their own, which
    it does not know.

    ## Safety
    Found only where the name is certainly the wrapper.

    ## References
    https://github.com/NVIDIA/apex/issues/109, https://github.com/NVIDIA/apex/issues/88.
    """

    code = "DDP618"
    name = "sync-after-wrap"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.nn import SyncBatchNorm
                model = DistributedDataParallel(net)
                model = SyncBatchNorm.convert_sync_batchnorm(model)
            """,
            message="before wrapping",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.nn import SyncBatchNorm
                net = SyncBatchNorm.convert_sync_batchnorm(net)
                model = DistributedDataParallel(net)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        for call in script.module.calls:
            if not (call.name or "").endswith("SyncBatchNorm.convert_sync_batchnorm"):
                continue
            module = call.argument(0, "module")
            if module is not None and (
                script.wrap_behind(module) is not None or any(wrap.node is module for wrap in script.wraps)
            ):
                yield Problem(
                    call.node,
                    "the model is wrapped already, and its wrapper will not know the new layers' buffers",
                    "convert the model before wrapping it",
                )
