"""One rank alone loads weights into a model that is wrapped already, or the state of an optimizer.

Finds `load_state_dict` on a wrapper, on the model inside, or on an optimizer of torch's, under `if rank == 0:`.

The wrapper sends rank 0's parameters to the others once, when it is made, and an optimizer's state never. Whatever else
is loaded stays where it was loaded, and the ranks train different models.

Silent where the file broadcasts or synchronizes weights, and where no other rank runs the model afterwards: the best
weights may be loaded at the end, to be tested by one rank.

https://github.com/Metta-AI/metta/pull/1882, https://github.com/pytorch/pytorch/issues/111138.
"""

import ast

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected


class LoadOnOneRank(CheckRule):
    message = "one rank alone loads this, behind the wrap: the other ranks keep what they had"
    advice = "load on every rank; weights may come on rank 0 alone before wrapping"
    examples = corrected("""
        # other ranks
          model = DistributedDataParallel(net)
        - if dist.get_rank() == 0:
        -     model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
        + model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
    """)

    def find(self, script: DDPScript) -> Found:
        if script.sends_weights:
            return
        for call in script.module.calls if script.wraps or script.whole_batch_wraps else ():
            condition = script.ranks.at(call.node).condition if call.method == "load_state_dict" else None
            if condition is None or not isinstance(call.node.func, ast.Attribute):
                continue
            owner = call.node.func.value
            is_of_all = script.wrap_of(owner) or script.wrap_around(owner) or script.is_optimizer(owner)
            asks = script.wraps or script.ranks.asks_now(condition.test)
            if is_of_all and asks and not script.is_over(call.node):
                yield self.problem(call.node)
