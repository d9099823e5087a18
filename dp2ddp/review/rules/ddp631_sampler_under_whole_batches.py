"""The data are cut twice: by the sampler, and by the wrapper of a converted script.

Finds a `DistributedSampler` in a script that dp2ddp converted, whose loader is trained on.

The wrapper (`WholeBatchDDP` and the like) takes a batch that is the same on all ranks, and each rank runs its rows of
it. With such a sampler a rank has another batch, and still runs its rows alone: one in W samples is trained on, in an
epoch with one W-th of the steps. Nothing fails.

Found only where the helpers are the script's one way of training on ranks, the sampler is given under no condition, and
the file calls no collective itself.

https://github.com/huggingface/accelerate/issues/3520 (the same with Accelerate's loaders).
"""

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected

CONVERTED = """\
from torch.utils.data import DataLoader, DistributedSampler
from ddp_helpers import WholeBatchDDP, init_distributed
init_distributed()
"""


class SamplerUnderWholeBatches(CheckRule):
    start = CONVERTED
    message = "the data are cut twice, by this sampler and by the wrapper: one in W samples is trained on"
    advice = "give every rank the same batches: take the sampler out{shuffles}"
    examples = corrected("""
        # cut twice
          model = WholeBatchDDP(net)
        - loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
        + loader = DataLoader(data, batch_size=32, shuffle=True)
          for x, y in loader:
              criterion(model(x), y).backward()
    """)

    def find(self, script: DDPScript) -> Found:
        if not script.whole_batch_wraps or script.collectives:
            return
        for loader in (*script.loaders, *script.helper_loaders):
            sampler = loader.certain_sampler
            if sampler is not None and loader.trains:
                shuffles = "" if loader.shuffle else ", and let the loader shuffle"
                yield self.problem(sampler.node, shuffles=shuffles)
