"""All ranks write the same checkpoint file at once.

Finds a `torch.save` to a path that is the same on all ranks, where every rank is certain to come by; also in a script
that dp2ddp converted, whose own saves go by way of a helper.

The ranks write into one file at the same time. What lies there afterwards may be torn, and is only noticed when
somebody loads it.

Found only where the whole way from the start of a rank is in the file and no condition on it can ask for a rank.

https://github.com/NVIDIA/apex/issues/629, https://github.com/bytedance/ibot/issues/15.
"""

import ast

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected


class SaveOnEveryRank(CheckRule):
    message = "every rank writes this file, all at the same time"
    advice = "save {how}"
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
        if not (script.trains_on_ranks or script.whole_batch_wraps) or _has_own_save(script):
            return
        how = "on one rank: if dist.get_rank() == 0"
        if script.whole_batch_wraps:
            how = "as convert does, by the helper save_on_rank0(...)"
        for call in script.file.calls_of("torch.save"):
            path = call.argument(1, "f")
            if path is None or script.ranks.may_ask(path) or _is_in_memory(script, path):
                continue
            if script.ranks.at(call.node).are_all:
                yield self.problem(call.node, how=how)


def _has_own_save(script: DDPScript) -> bool:
    """`torch.save = save_on_master`."""
    stores = (each for each in script.module.by_word.get("save", ()) if isinstance(each.ctx, ast.Store))
    return any(script.file.text_of(each) == "torch.save" for each in stores)


def _is_in_memory(script: DDPScript, path: ast.expr) -> bool:
    """`io.BytesIO()`, a file that was opened elsewhere, or an attribute that nobody knows."""
    return script.flow.is_open_file(path) or not (isinstance(path, ast.Name) or script.file.values(path))
