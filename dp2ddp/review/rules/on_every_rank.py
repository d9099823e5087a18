"""What every rank does, and one should do."""

import ast

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.uses import is_harmless, row_of
from dp2ddp.codemod.model.nodes import all_from, values_of
from dp2ddp.review.check_rule import CheckRule, CheckWarning, DDPScript, Found, corrected

ALONE = "on one rank: if dist.get_rank() == 0"
# What writes a file, where the path stands, and what does it once in a converted script
WRITERS = {
    "torch.save": ((1, "f"), "save_on_rank0"),
    "builtins.open": ((0, "file"), "open_on_rank0"),
    **dict.fromkeys(words("numpy.save numpy.savez numpy.savez_compressed"), ((0, "file"), "run_on_rank0")),
    "numpy.savetxt": ((0, "fname"), "run_on_rank0"),
}
APART = {Does.DIFFER, Does.ANSWER, Does.FOLDER}
REPLACES_PRINT = {"builtins", "redirect_stdout", "stdout"}
TRACKERS = words(
    "wandb.init mlflow.start_run neptune.init_run torch.utils.tensorboard.SummaryWriter tensorboardX.SummaryWriter"
)


class SaveOnEveryRank(CheckRule):
    """All ranks write the same file at once.

    Finds a `torch.save` or `np.save` to a path that is the same on all ranks, and `open(path, "w")`, `"a"` and their
    like, where every rank is certain to come by; also in a script that dp2ddp converted, whose own writing goes by way
    of helpers.

    The ranks write into one file at the same time. What lies there afterwards may be torn, or has each line W times,
    and is only noticed when somebody reads it.

    Found only where the whole way from the start of a rank is in the file and no condition on it can ask for a rank.

    https://github.com/NVIDIA/apex/issues/629, https://github.com/bytedance/ibot/issues/15.
    """

    code, name = "DDP604", "save-on-every-rank"
    message = "every rank writes this file, all at the same time"
    advice = "write it {how}"
    examples = corrected("""
        # every rank
          def main():
              model = DistributedDataParallel(net)
              for epoch in range(10):
                  train(model)
        -         torch.save(model.state_dict(), "last.pt")
        +         if dist.get_rank() == 0:
        +             torch.save(model.state_dict(), "last.pt")
          if __name__ == "__main__":
              main()
    """)

    def find(self, script: DDPScript) -> Found:
        if not (script.trains_on_ranks or script.whole_batch_wraps):
            return
        for call in script.calls_by_all(*WRITERS):
            place, helper = WRITERS[call.name or ""]
            path, row = call.argument(*place), row_of(script.module, call)
            if path is None or row is None or is_harmless(script.module, call, row):
                continue
            is_own = script.ranks.may_ask(path) or script.flow.is_open_file(path) or _is_apart(script, path)
            if is_own or not (isinstance(path, ast.Name) or script.file.values(path)):
                continue  # no attribute that nobody knows
            by_helper = f"as convert does, by the helper {helper}(...)"
            yield self.problem(call.node, how=by_helper if script.whole_batch_wraps else ALONE)


def _is_apart(script: DDPScript, path: ast.expr) -> bool:
    """Whether a path leads nowhere, or to another file on each rank: `f"log{os.getpid()}.txt"`."""
    begin: list[ast.AST] = [path]
    made = all_from(begin, lambda part: (each for one in script.file.values(part) for each in ast.walk(one)))
    names = {script.module.name(getattr(each, "func", each)) for each in (*made, *ast.walk(path))}
    return "os.devnull" in names or not APART.isdisjoint(map(does, names))


class PrintOnEveryRank(CheckWarning):
    """Every rank prints the same kind of line: W lines for one, each with one rank's numbers.

    Finds a `print` in a loop that every rank is certain to come by, and whose text names no rank. One finding a file.

    W lines for one, mixed with each other, and a loss that differs from line to line since each is that of one rank's
    batch.

    Silent where the file (or a function of another file that sets ranks up) may replace `print`.

    https://github.com/Lightning-AI/pytorch-lightning/issues/901.
    """

    code, name = "DDP605", "print-on-every-rank"
    message = "every rank prints this line{others}"
    advice = "print on one rank: if dist.get_rank() == 0"
    examples = corrected("""
        # every rank prints
          model = DistributedDataParallel(net)
          for epoch in range(10):
              loss = train(model)
        -     print("epoch", epoch, "loss", loss)
        +     if dist.get_rank() == 0:
        +         print("epoch", epoch, "loss", loss)
    """)

    def find(self, script: DDPScript) -> Found:
        is_replaced = script.sets_up_elsewhere or script.file.words & REPLACES_PRINT
        if not script.trains_on_ranks or not script.groups or is_replaced:
            return
        prints = [
            call.node
            for call in script.calls_by_all("builtins.print")
            if script.file.loop_around(call.node) and not any(map(script.ranks.may_ask, call.node.args))
        ]
        if prints:
            others = f", and {len(prints) - 1} more like it" if len(prints) > 1 else ""
            yield self.problem(prints[0], others=others)


class TrackerOnEveryRank(CheckWarning):
    """Every rank starts a run of the tracker of its own.

    Finds `wandb.init`, `SummaryWriter`, `mlflow.start_run` and `neptune.init_run` where every rank is certain to come
    by.

    W runs for one in the dashboard, or W event files in one folder, whose curves jump from rank to rank.

    Silent where an argument speaks of ranks, where wandb is given a `group`, and where WANDB_MODE is named.

    https://github.com/huggingface/pytorch-image-models/issues/1309, https://github.com/wandb/wandb/issues/452.
    """

    code, name = "DDP606", "tracker-on-every-rank"
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
        if not on_ranks or "WANDB_MODE" in script.file.words:
            return
        for call in script.calls_by_all(*TRACKERS):
            if not call.keyword("group") and not any(map(script.ranks.may_ask, values_of(call.node))):
                yield self.problem(call.node, name=call.name)
