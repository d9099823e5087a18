"""Every rank prints the same kind of line: W lines for one, each with one rank's numbers.

Finds a `print` in a loop that every rank is certain to come by, and whose text names no rank. One finding a file.

W lines for one, mixed with each other, and a loss that differs from line to line since each is that of one rank's
batch.

Silent where the file (or a function of another file that sets ranks up) may replace `print`.

https://github.com/Lightning-AI/pytorch-lightning/issues/901,
https://github.com/ashleve/lightning-hydra-template/issues/115.
"""

from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected

REPLACES_PRINT = {"redirect_stdout", "stdout"}


class PrintOnEveryRank(CheckWarning):
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
        if not script.trains_on_ranks or not script.groups or script.sets_up_elsewhere:
            return
        if script.file.names_module("builtins") or script.file.names & REPLACES_PRINT:
            return
        prints = [
            call.node
            for call in script.file.calls_of("builtins.print")
            if script.file.loop_around(call.node) is not None
            and not any(map(script.ranks.may_ask, call.node.args))
            and script.ranks.at(call.node).are_all
        ]
        if prints:
            others = f", and {len(prints) - 1} more like it" if len(prints) > 1 else ""
            yield self.problem(prints[0], others=others)
