"""DDP604: a checkpoint that every rank writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class SaveOnEveryRank(CheckRule):
    """All ranks write the same checkpoint file at once.

    ## What it does
    Finds a `torch.save` to a path that is the same on all ranks, where every rank is certain to come by; also in a
    script that dp2ddp converted, whose own saves go by way of a helper.

    ## Why
    The ranks write into one file at the same time. What lies there afterwards may be torn, and is only noticed
    when somebody loads it.

    ## Safety
    Found only where the whole way from the start of a rank is in the file and no condition on it can ask for a
    rank.

    ## References
    https://github.com/NVIDIA/apex/issues/629, https://github.com/bytedance/ibot/issues/15.
    """

    code = "DDP604"
    name = "save-on-every-rank"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                def main():
                    model = DistributedDataParallel(net)
                    for epoch in range(10):
                        train(model)
                        torch.save(model.state_dict(), "last.pt")
                if __name__ == "__main__":
                    main()
            """,
            message="every rank",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                def main():
                    model = DistributedDataParallel(net)
                    for epoch in range(10):
                        train(model)
                        if dist.get_rank() == 0:
                            torch.save(model.state_dict(), "last.pt")
                if __name__ == "__main__":
                    main()
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                def main():
                    model = DistributedDataParallel(net)
                    torch.save(model.state_dict(), f"part{dist.get_rank()}.pt")
                if __name__ == "__main__":
                    main()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not (script.trains_on_ranks or script.whole_batch_wraps) or script.own_save:
            return
        for call in script.file.calls_of("torch.save"):
            path = call.argument(1, "f")
            if path is None or script.ranks.may_ask(path) or _is_in_memory(script, path):
                continue
            if script.ranks.runs_on_all(call.node) and not _is_called_with_rank(script, call):
                advice = _by_helper(script) or "save on one rank: if dist.get_rank() == 0"
                yield Problem(call.node, "every rank writes this file, all at the same time", advice)


def _by_helper(script: DDPScript) -> str:
    """How a converted script saves."""
    if not script.whole_batch_wraps:
        return ""
    is_small = "init_distributed" in script.helper_calls.values()
    return f"save as convert does, by the helper {'save_on_rank0' if is_small else 'save_on_rank_zero'}(...)"


def _is_in_memory(script: DDPScript, path: ast.expr) -> bool:
    """`io.BytesIO()`, a file that was opened elsewhere, or an attribute that nobody knows."""
    return script.is_open_file(path) or not (isinstance(path, ast.Name) or script.values_of(path))


def _is_called_with_rank(script: DDPScript, call: Call) -> bool:
    """Whether its function is handed something that differs from rank to rank, which the path may be made of."""
    function = script.sites.function_of(call.node)
    parents = (script.module.parents[site] for site in script.sites.sites_of(function))
    calls = [parent for parent in parents if isinstance(parent, ast.Call)]
    given = [value for parent in calls for value in (*parent.args, *(word.value for word in parent.keywords))]
    return any(map(script.ranks.may_ask, given))
