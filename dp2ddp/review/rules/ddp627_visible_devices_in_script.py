"""The script says which GPUs there are, to every rank alike.

Finds `os.environ["CUDA_VISIBLE_DEVICES"] = "..."`, a text, in a file that wraps a model or makes a process group.

With one GPU in it all ranks share that one (NCCL refuses: "Duplicate GPU detected"). With several, a launch with
another number of ranks, or on another machine, ends in "invalid device ordinal"; and what the scheduler chose is
overwritten.

Values that are computed (from an argument, a rank) are left alone.

https://github.com/pytorch/examples/issues/885, https://github.com/Peterande/D-FINE/issues/289.
"""

from dp2ddp.codemod.looks.start import settings
from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, literal, wrong


class VisibleDevicesInScript(CheckWarning):
    message = "{what}"
    advice = "leave it out, and say it where the script is started: CUDA_VISIBLE_DEVICES=0,1 torchrun ..."
    examples = (
        *corrected("""
            # all ranks share
              import os
            - os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            + os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus
        """),
        wrong('# 2 GPUs\nimport os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"'),
    )

    def find(self, script: DDPScript) -> Found:
        for statement, value in settings(script.module) if script.wraps or script.groups else ():
            text, count = literal(value), str(literal(value)).count(",") + 1
            leaves_it = count > 1 and "setdefault" in script.module.text(statement)  # to the launch
            if isinstance(text, str) and text and not leaves_it:
                what = f"any launch of this script sees these {count} GPUs, whatever it was given"
                yield self.problem(statement, what=what if count > 1 else "all ranks share this one GPU")
