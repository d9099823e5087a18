"""Every rank starts a run of the tracker of its own.

Finds `wandb.init`, `SummaryWriter`, `mlflow.start_run` and `neptune.init_run` where every rank is certain to come by.

W runs for one in the dashboard, or W event files in one folder, whose curves jump from rank to rank.

Silent where an argument speaks of ranks, where wandb is given a `group`, and where WANDB_MODE is named.

https://github.com/huggingface/pytorch-image-models/issues/1309, https://github.com/wandb/wandb/issues/452.
"""

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, values_of

TRACKERS = words(
    "wandb.init mlflow.start_run neptune.init_run torch.utils.tensorboard.SummaryWriter tensorboardX.SummaryWriter"
)


class TrackerOnEveryRank(CheckWarning):
    message = "every rank starts a run of its own ({name})"
    advice = "start it on one rank, and log there only: if dist.get_rank() == 0"
    examples = corrected("""
        # a run of its own
          import wandb
          model = DistributedDataParallel(net)
        - wandb.init(project="cifar")
        + if dist.get_rank() == 0:
        +     wandb.init(project="cifar")
    """)

    def find(self, script: DDPScript) -> Found:
        on_ranks = script.trains_on_ranks and script.groups or script.whole_batch_wraps
        if not on_ranks or script.file.says("WANDB_MODE"):
            return
        for call in script.file.calls_of(*TRACKERS):
            if call.keyword("group") or any(map(script.ranks.may_ask, values_of(call.node))):
                continue
            if script.ranks.at(call.node).are_all:
                yield self.problem(call.node, name=call.name)
