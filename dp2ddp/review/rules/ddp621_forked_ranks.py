"""DDP621: ranks that are forked from a process with CUDA or NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level


class ForkedRanks(CheckRule):
    """Ranks are forked: NCCL and CUDA do not outlive a fork.

    ## What it does
    Finds `start_processes(..., start_method="fork")`, and `set_start_method("fork")` beside `mp.spawn` or
    `Process`, in a file that names the NCCL backend.

    ## Why
    CUDA cannot be used in a forked process whose parent has used it ("Cannot re-initialize CUDA in forked
    subprocess"), and NCCL's threads are not there after a fork: collectives hang.

    ## Safety
    Silent where the start method is not written out.

    ## References
    https://github.com/pytorch/pytorch/issues/40403,
    https://github.com/facebookresearch/PointContrast/issues/15.
    """

    code = "DDP621"
    name = "forked-ranks"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                import torch.multiprocessing as mp
                def worker(rank):
                    dist.init_process_group("nccl", rank=rank, world_size=2)
                if __name__ == "__main__":
                    mp.start_processes(worker, nprocs=2, start_method="fork")
            """,
            message="spawn",
        ),
        Untouched("""
                import torch.distributed as dist
                import torch.multiprocessing as mp
                def worker(rank):
                    dist.init_process_group("nccl", rank=rank, world_size=2)
                if __name__ == "__main__":
                    mp.spawn(worker, nprocs=2)
        """),
        Untouched("""
                import torch.distributed as dist
                import torch.multiprocessing as mp
                def worker(rank):
                    dist.init_process_group("gloo", rank=rank, world_size=2)
                if __name__ == "__main__":
                    mp.start_processes(worker, nprocs=2, start_method="fork")
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not any(literal(group.argument(0, "backend")) == "nccl" for group in script.groups):
            return
        for call in script.module.calls:
            name = (call.name or "").rpartition(".")[2]
            method = (
                call.argument(0, "method")
                if name == "set_start_method"
                else call.argument(None, "start_method")
            )
            is_start = name == "set_start_method" and bool(script.sites.spawns) or call in script.sites.spawns
            if is_start and literal(method) == "fork":
                yield Problem(
                    call.node,
                    "forks the ranks, and neither CUDA nor NCCL works in a forked process",
                    'start them with torchrun, or by "spawn"',
                )
