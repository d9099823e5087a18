"""DDP901: scripts that have a distributed mode of their own."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertBefore, Lift, Note, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.own_mode import (
    ASKS,
    kinds_with_ddp,
    own_mode,
    tests_for_ddp,
    without_condition,
)
from dp2ddp.codemod.rule import Flags, Notes, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class AlreadyDistributed(Rule):
    """Leave a distributed mode of the script's own alone, and switched off.

    ## What it does
    Where `init_process_group`, DistributedDataParallel and the like stand behind a condition (`if args.distributed:`),
    they stay as they are. What torchrun says by the environment (RANK, WORLD_SIZE) is taken away before the script
    asks for it, and `dist.is_initialized()` says whether the script has a process group of its own, to libraries as
    well: SyncBatchNorm stays what it was under DataParallel, metrics are not added up over ranks. A hazard where
    no condition stands before such a call.

    ## Why
    Ranks go the way that DataParallel's process went. A script that finds itself under torchrun would switch to its
    own mode, and set up processes, devices and samplers a second time.

    ## Safety
    What needs a process group fails without one. So where the script trains under DataParallel, the conditions are
    false, and they stay false. With the flag set, the converted script ends at its own `init_process_group`: use the
    original for that.

    ## References
    docs/semantics.md#launchers, docs/idioms.md#files-logs-devices-processes.
    """

    code = "DDP901"
    name = "already-distributed"
    nodes = ("Attribute", "BaseStatement", "Call", "Name", "Tuple")
    examples = (
        Flags(
            before="""
                import torch
                import torch.distributed as dist
                dist.init_process_group("nccl")
                net = torch.nn.DataParallel(net)
            """,
            message="several processes",
        ),
        Notes(
            before="""
                import torch
                import torch.distributed as dist
                if args.distributed:
                    dist.init_process_group("nccl")
                else:
                    net = torch.nn.DataParallel(net)
            """,
            message="its own distributed mode",
        ),
        Rewrites(
            before="""
                import os
                import torch
                import torch.distributed as dist
                distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
                net = torch.nn.DataParallel(net)
                rank = dist.get_rank() if dist.is_initialized() else 0
                ours = isinstance(net, torch.nn.parallel.DistributedDataParallel)
                known = isinstance(net, (torch.nn.parallel.DistributedDataParallel, torch.nn.Sequential))
            """,
            after="""
                import os
                import torch
                import torch.distributed as dist

                forget_launcher()

                distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
                net = torch.nn.DataParallel(net)
                rank = dist.get_rank() if has_own_group() else 0
                ours = (type(net) is torch.nn.parallel.DistributedDataParallel)
                known = isinstance(net, (torch.nn.Sequential,))
            """,
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted or not facts.all_wraps:
            return
        if facts.is_entry and facts.entry.first_act and facts.launcher_matters:
            because = (
                "whatever asks whether it runs among ranks is told what it was told under DataParallel: no"
            )
            yield InsertBefore(facts.entry.first_act, f"{facts.names.helper('forget_launcher')}()", because)
            yield Lift("forget_launcher", because)
        node = without_condition(facts.modules, facts.script)
        if node is not None:
            yield Hazard(
                node,
                "this script runs as several processes already",
                "start it in its own distributed mode; or take that out and convert again",
            )
            return
        yield from _own_mode_stays_off(facts)


def _own_mode_stays_off(facts: Facts) -> Iterator[Finding]:
    first = next(own_mode(facts.script), None)
    if first is not None:
        yield Note(
            first.node,
            "the script has its own distributed mode, which stays as it is: leave its flag off, the ranks are "
            "what DataParallel's devices were",
        )
    because = "the process group of the ranks is not the script's own"
    for call in facts.script.calls_of(ASKS):
        yield Replace(call.node.func, facts.names.helper("has_own_group"), because)
        yield Lift("has_own_group", because)
    because = "the wrapper that takes DataParallel's place is a DistributedDataParallel, by name"
    for test in tests_for_ddp(facts.script):
        holes = {"model": test.args[0], "kind": test.args[1]}
        yield Replace(test, "(type({model}) is {kind})", because, holes)
    for kinds, others in kinds_with_ddp(facts.script):
        yield Replace(
            kinds, f"({''.join(f'{facts.script.text(other)}, ' for other in others).rstrip()})", because
        )
