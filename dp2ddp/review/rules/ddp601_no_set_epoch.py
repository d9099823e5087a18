"""Every epoch has the same order: `set_epoch` is never called, or always with the same number.

Finds a `DistributedSampler` that shuffles, whose loader is iterated again and again to train, and no `set_epoch`
anywhere in it that is given anything but a constant.

The sampler draws its order from `seed + epoch`, and `epoch` stays 0 until somebody sets it. So all epochs have one
order, and a rank sees the same share of the data again and again, in the same batches.

Silent where the sampler or its loader leaves the file (returned, handed to a function of another file), where it is
made anew with a seed in each round, and where a framework owns the loop.

https://github.com/pytorch/pytorch/issues/31771, https://github.com/yangkky/distributed_tutorial/issues/5.
"""

import ast

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected, literal


class NoSetEpoch(CheckRule):
    message = "set_epoch() {what}, so every epoch has the order of the first"
    advice = "call sampler.set_epoch(epoch) at the start of each epoch"
    examples = corrected("""
        # set_epoch
          from torch.utils.data import DistributedSampler
          model = DistributedDataParallel(model)
          sampler = DistributedSampler(data)
          loader = DataLoader(data, batch_size=32, sampler=sampler)
          for epoch in range(10):
        +     sampler.set_epoch(epoch)
              for x, y in loader:
                  model(x, y).backward()
    """)

    def find(self, script: DDPScript) -> Found:
        told = [call.argument(0, "epoch") for call in script.module.calls if call.method == "set_epoch"]
        is_told_one = bool(told) and all(isinstance(each, ast.Constant) for each in told)
        if script.has_framework or script.file.says("set_epoch") and not is_told_one:
            return
        for loader in script.loaders:
            if loader.sampler is None or not any(loop.trains and loop.repeats for loop in loader.loops):
                continue
            shuffle, seed = loader.sampler.argument(3, "shuffle"), loader.sampler.argument(4, "seed")
            is_made_anew = seed is not None and script.file.loop_around(loader.sampler.node) is not None
            if loader.stays_here and not is_made_anew and (shuffle is None or literal(shuffle) is True):
                what = "gets the same number each time" if is_told_one else "is never called"
                yield self.problem(loader.sampler.node, what=what)
