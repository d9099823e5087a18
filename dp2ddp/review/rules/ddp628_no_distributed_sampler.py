"""Every rank trains on all of the data.

Finds a shuffling `DataLoader` without a sampler whose loop trains, in a file that makes a process group and wraps a
model, and names no sampler at all; or makes a `DistributedSampler` of the same data and never gives it to a loader.

An epoch has W times as many steps as it should, each on W batches of the same data set. The ranks' batches are even the
same ones where all have the same seed, and then W GPUs do the work of one.

Silent where anything else is called a sampler, the data set is iterable or asks for a rank, each rank seeds itself or
takes its rows of a batch, or a framework owns the loop.

https://github.com/openvla/openvla/issues/125, https://github.com/innnky/so-vits-svc/issues/70.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, inside, literal

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
        if not script.trains_on_ranks or not script.groups:
            return
        idle = {script.file.text_of(data) for data in _without_loader(script)}
        if script.file.says(SHARES) and not idle:
            return
        if any(map(script.ranks.may_ask, (each for call in script.seedings for each in call.node.args))):
            return  # ranks draw different batches on purpose
        for loader in script.loaders:
            data = loader.call.argument(0, "dataset")
            if data is None or script.ranks.may_ask(data) or loader.has_sampler:
                continue
            if script.file.text_of(data) not in idle if idle else literal(loader.shuffle) is not True:
                continue
            if loader.trains and not any(_cuts_by_rank(script, loop.node) for loop in loader.loops):
                yield self.problem(loader.call.node)


def _without_loader(script: DDPScript) -> Iterator[ast.expr]:
    """The data of samplers of which nothing but `set_epoch` is ever asked."""
    for sampler in script.samplers:
        data, uses = sampler.argument(0, "dataset"), script.flow.uses(sampler.node)
        is_kept = bool(uses) or isinstance(script.flow.target(sampler.node), ast.Name)
        around = [script.module.parents[use] for use in uses]
        if data and is_kept and all(getattr(each, "attr", "") == "set_epoch" for each in around):
            yield data


def _cuts_by_rank(script: DDPScript, loop: ast.For) -> bool:
    """`x.chunk(world)[rank]`."""
    return any(script.ranks.may_ask(item.slice) for item in inside(loop, ast.Subscript))
