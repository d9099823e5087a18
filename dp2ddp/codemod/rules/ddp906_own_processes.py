"""Leave threads and processes of the script to rank 0.

`threading.Thread(target=load, args=(batches,))` becomes `hold_on_rank0(threading.Thread, ...)`, and so does what
they meet at: `queue.Queue(8)`. A hazard where a thread changes something of the main flow by another way, and for
mp.spawn, os.fork and os._exit.

What threads hand over comes in an order that differs from rank to rank, and then so do the batches; forked ranks
share connections; os._exit leaves the others waiting.

Whatever the main flow asks of such an object (`get()`, the next item) is asked on rank 0, and the answer, or the
error, comes to every rank. Workers of a DataLoader are none of these: they hand over in order.

docs/semantics.md#own-processes, docs/semantics.md#end-of-process.
"""

from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.looks.own_mode import is_guarded
from dp2ddp.codemod.looks.threads import (
    HAND_OVER,
    MEETING_POINTS,
    WAITS_FOR_MANY,
    is_starter,
    leaks_in_pools,
    why_not,
)
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Flags, Rule, Untouched, call_by, diff, flags

ENDS = ("os._exit", "os.fork", "os.kill", "os.abort")
VALUES = ("multiprocessing.Value", "torch.multiprocessing.Value")  # workers of loaders count in them, too
SPAWNS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
BECAUSE = "threads and processes hand over in an order of their own: rank 0 has them, and every rank gets its answers"
WAITS = Reason("waits-for-many", "{name}() waits for what only rank 0 has", "ask each for its result()")
APART = Reason(
    "ranks-apart",
    "{name}() makes the ranks differ, or leaves some of them waiting",
    "load with a DataLoader, and end with sys.exit(); or keep this script on DataParallel",
)
CHANGED = Reason(
    "pool-changes", "what runs here changes `{what}`, which the other ranks do not see", HAND_OVER
)


class OwnProcesses(Rule):
    nodes = ("Call",)
    examples = (
        diff("""
              import multiprocessing
              class Counted(torch.utils.data.Dataset):
                  def __init__(self):
            -         self.seen = multiprocessing.Value("i", 0)
            +         self.seen = hold_on_rank0(multiprocessing.Value, "i", 0)
                  def __getitem__(self, index):
                      with self.seen.get_lock():
                          self.seen.value += 1
        """),
        flags("""
            # threading.Thread() changes `found`
            import threading
            import torch
            net = torch.nn.DataParallel(net)
            found = []
            def fill():
                found.append(torch.ones(4, 2))
            threading.Thread(target=fill).start()
        """),
        Flags(
            before="import os\nimport torch\nnet = torch.nn.DataParallel(net)\nos._exit(0)",
            message="os._exit",
        ),
        Untouched("""
            import torch
            import torch.multiprocessing as mp
            def worker(gpu):
                net = torch.nn.DataParallel(net)
            if args.distributed:
                mp.spawn(worker, nprocs=4)
            else:
                worker(None)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if is_starter(module, call):
                why = why_not(module, call)
                yield Hazard(call.node, why) if why else call_by(call.node, "hold_on_rank0", BECAUSE)
            elif call.name in VALUES or call.name in MEETING_POINTS and _has_starters(module.program):
                yield call_by(call.node, "hold_on_rank0", BECAUSE)
            elif call.name in WAITS_FOR_MANY:
                yield Hazard(call.node, WAITS.of(name=call.name))
            elif call.name in ENDS or call.name in SPAWNS and not _is_other_mode(module, call):
                yield Hazard(call.node, APART.of(name=call.name))
        for call, leak in leaks_in_pools(module) if _has_starters(module.program) else ():
            yield Hazard(call.node, CHANGED.of(what=leak))


@lru_cache(maxsize=1)
def _has_starters(program: Program) -> bool:
    """Whether anything of the program that can run starts threads or processes."""
    return any(is_starter(each, call) and program.reach.runs(each, call.node) for each, call in program.calls)


def _is_other_mode(module: Module, spawn: Call) -> bool:
    """Whether processes are spawned behind a flag, for a function that is called as it is without the flag."""
    function = spawn.argument(0, "fn")
    definition = module.definition(function) if function is not None else None
    return (
        definition is not None
        and is_guarded(module, spawn.node)
        and any(module.program.calls_of(*definition))
    )
