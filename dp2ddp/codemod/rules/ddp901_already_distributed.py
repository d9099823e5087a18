"""Leave a distributed mode of the script's own alone, and switched off.

Where `init_process_group`, DistributedDataParallel and the like stand behind a condition (`if args.distributed:`),
they stay as they are, with a note. A hazard where no condition stands before such a call.

Ranks go the way that DataParallel's process went: where the script trains under DataParallel, the conditions are
false, and what torchrun says by the environment is taken away before the script asks for it.

With its flag set, the converted script ends at its own `init_process_group`: use the original for that.

docs/semantics.md#launchers, docs/effects.md.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.own_mode import is_guarded
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags, notes

SEVERAL_PROCESSES = Reason(
    "several-processes",
    "this script runs as several processes already ({name})",
    "start it in its own distributed mode; or take that out and convert again",
)
OWN_MODE = Reason(
    "own-distributed-mode",
    "the script has its own distributed mode, which stays as it is: leave its flag off, the ranks are what "
    "DataParallel's devices were",
)


class AlreadyDistributed(Rule):
    everywhere = True  # it is this that everything else leaves alone
    examples = (
        flags("""
            # several processes
            import torch
            import torch.distributed as dist
            dist.init_process_group("nccl")
            net = torch.nn.DataParallel(net)
        """),
        notes("""
            # its own distributed mode
            import torch
            import torch.distributed as dist
            if args.distributed:
                dist.init_process_group("nccl")
            else:
                net = torch.nn.DataParallel(net)
        """),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        own = [call for call in module.calls if does(call.name) is Does.DISTRIBUTE]
        for call in own:
            if not is_guarded(module, call.node) and module.program.reach.runs(module, call.node):
                yield Hazard(call.node, SEVERAL_PROCESSES.of(name=call.name))
                return
        if own:
            yield Note(own[0].node, OWN_MODE)
