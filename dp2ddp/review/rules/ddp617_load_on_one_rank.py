"""One rank alone loads weights into a model that is wrapped already.

Finds `load_state_dict` on a wrapper, or on the model inside, under `if rank == 0:`.

The wrapper sends rank 0's parameters to the others once, when it is made. Whatever is loaded afterwards stays where it
was loaded, and the ranks train different models.

Silent where the file broadcasts or synchronizes anything itself.

https://github.com/Metta-AI/metta/pull/1882, https://github.com/pytorch/pytorch/issues/111138.
"""

import ast
import re

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected

SENDS = re.compile("broadcast(?!_buffers)|sync_module|sync_param")


class LoadOnOneRank(CheckRule):
    message = (
        "one rank alone loads these weights: the other ranks keep what they had when the model was wrapped"
    )
    advice = "load on every rank, or on rank 0 before wrapping"
    examples = corrected("""
        # other ranks
          model = DistributedDataParallel(net)
        - if dist.get_rank() == 0:
        -     model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
        + model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
    """)

    def find(self, script: DDPScript) -> Found:
        if any(map(SENDS.search, script.module.by_word)):  # no keyword: `broadcast_buffers=` sends no weights
            return
        wraps = script.wraps or script.whole_batch_wraps
        for call in script.module.calls if wraps else ():
            match call.node.func:
                case (
                    ast.Attribute(value=ast.Attribute(value=owner, attr="module"), attr="load_state_dict")
                    | ast.Attribute(value=owner, attr="load_state_dict")
                ):
                    wrap, condition = script.wrap_of(owner, wraps), script.ranks.at(call.node).condition
                    if wrap and condition and (not wrap.helper or script.ranks.asks_now(condition.test)):
                        yield self.problem(call.node)
