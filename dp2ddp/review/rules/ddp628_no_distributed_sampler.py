"""Every rank trains on all of the data.

Finds a shuffling `DataLoader` without a sampler whose loop trains, in a file that makes a process group and wraps a
model, and names no sampler at all.

An epoch has W times as many steps as it should, each on W batches of the same data set. The ranks' batches are even the
same ones where all have the same seed, and then W GPUs do the work of one.

Silent where anything is called a sampler, the data set is iterable or asks for a rank, each rank seeds itself or takes
its rows of a batch, or a framework owns the loop.

https://github.com/openvla/openvla/issues/125, https://github.com/innnky/so-vits-svc/issues/70.
"""

import ast
import re

from dp2ddp.review.check_rule import Call, CheckWarning, DDPScript, Found, corrected, inside, literal

SHARES = re.compile(r"sampler|iterable|webdataset|dali|shard|prepare$|split_dataset", re.IGNORECASE)


class NoDistributedSampler(CheckWarning):
    message = "each rank loads all of the data: an epoch takes as long as on one GPU"
    advice = "give the loader a DistributedSampler, and leave shuffle to it"
    examples = corrected("""
        # all of the data
        + from torch.utils.data import DistributedSampler
          model = DistributedDataParallel(net)
        - loader = DataLoader(data, batch_size=32, shuffle=True)
        + loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
          for x, y in loader:
              criterion(model(x), y).backward()
    """)

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks or not script.groups or script.file.says(SHARES):
            return
        if any(_is_seeded_by_rank(script, call) for call in script.module.calls):
            return
        for loader in script.loaders:
            data = loader.call.argument(0, "dataset")
            if literal(loader.shuffle) is not True or data is None or script.ranks.may_ask(data):
                continue
            if loader.trains and not any(_cuts_by_rank(script, loop.node) for loop in loader.loops):
                yield self.problem(loader.call.node)


def _is_seeded_by_rank(script: DDPScript, call: Call) -> bool:
    """`torch.manual_seed(seed + rank)`: ranks draw different batches on purpose."""
    word = (call.name or call.method).rpartition(".")[2]
    return "seed" in word and any(map(script.ranks.may_ask, call.node.args))


def _cuts_by_rank(script: DDPScript, loop: ast.For) -> bool:
    """`x.chunk(world)[rank]`."""
    return any(script.ranks.may_ask(item.slice) for item in inside(loop, ast.Subscript))
