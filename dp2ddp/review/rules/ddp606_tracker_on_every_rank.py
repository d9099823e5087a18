"""DDP606: a tracker that every rank starts."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level

TRACKERS = (
    *("wandb.init", "mlflow.start_run", "neptune.init_run"),
    *("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter"),
)


class TrackerOnEveryRank(CheckRule):
    """Every rank starts a run of the tracker of its own.

    ## What it does
    Finds `wandb.init`, `SummaryWriter`, `mlflow.start_run` and `neptune.init_run` where every rank is certain
    to come by.

    ## Why
    W runs for one in the dashboard, or W event files in one folder, whose curves jump from rank to rank.

    ## Safety
    Silent where an argument speaks of ranks, where wandb is given a `group`, and where WANDB_MODE is named.

    ## References
    https://github.com/huggingface/pytorch-image-models/issues/1309, https://github.com/wandb/wandb/issues/452.
    """

    code = "DDP606"
    name = "tracker-on-every-rank"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import wandb
                model = DistributedDataParallel(net)
                wandb.init(project="cifar")
            """,
            message="a run of its own",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import wandb
                model = DistributedDataParallel(net)
                if dist.get_rank() == 0:
                    wandb.init(project="cifar")
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import wandb
                model = DistributedDataParallel(net)
                wandb.init(project="cifar", group="ddp")
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        on_ranks = script.trains_on_ranks and script.groups or script.whole_batch_wraps
        if not on_ranks or script.mentions("WANDB_MODE"):
            return
        for call in script.file.calls_of(*TRACKERS):
            given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
            if call.keyword("group") or any(map(script.ranks.may_ask, given)):
                continue
            if script.ranks.runs_on_all(call.node):
                yield Problem(
                    call.node,
                    f"every rank starts a run of its own ({call.name})",
                    "start it on one rank, and log there only: if dist.get_rank() == 0",
                )
