"""Leave threads and processes of the script to rank 0.

`threading.Thread(target=load, args=(batches,))` becomes `hold_on_rank0(threading.Thread, ...)`, and so does what
they meet at: `queue.Queue(8)`, also with workers of a DataLoader. A hazard where these may fill memory that
processes share (an Array, `share_memory_()`, `mmap`), where a thread changes something of the main flow by another
way, for mp.spawn, os.fork, os._exit and os.execv, and for `pdb.set_trace()`, `breakpoint()` and their like. A note
where a handler of a signal is set, which reaches one process of several, and for a debugger behind a condition.

What threads hand over comes in an order that differs from rank to rank, and then so do the batches; forked ranks
share connections; os._exit leaves the others waiting. A debugger stops one rank, and the others wait for it without
a prompt of their own.

Whatever the main flow asks of such an object (`get()`, the next item) is asked on rank 0, and the answer, or the
error, comes to every rank. Workers of a DataLoader hand over their batches in order. `input()` is rank 0's (DDP503).

docs/semantics.md#own-processes, docs/semantics.md#end-of-process.
"""

from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.mentions import handed_on
from dp2ddp.codemod.looks.own_mode import is_guarded
from dp2ddp.codemod.looks.threads import (
    HAND_OVER,
    MEETING_POINTS,
    STARTERS,
    UNFOLLOWED,
    WAITS_FOR_MANY,
    goes_through,
    has_workers,
    is_shared_memory,
    is_starter,
    leaks_in_pools,
    loads_without_workers,
    why_not,
)
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff, flags, hand_on

ENDS = words("_exit abort execl execle execlp execlpe execv execve execvp execvpe fork forkpty kill killpg")
NAMED = "multiprocessing.shared_memory.SharedMemory"
SPAWNS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
BECAUSE = "threads and processes hand over in an order of their own: rank 0 has them, and every rank gets its answers"
LOADS = Reason(
    "thread-loads",
    "a thread may load here, and loading without workers draws as the main flow may, in no fixed order",
    "give the DataLoader workers (num_workers=1), which draw by themselves",
)
WAITS = Reason("waits-for-many", "{name}() waits for what only rank 0 has", "ask each for its result()")
APART = Reason(
    "ranks-apart",
    "{name}() makes the ranks differ, or leaves some of them waiting",
    "load with a DataLoader, and end with sys.exit(); or keep this script on DataParallel",
)
REFUSED = {
    **dict.fromkeys(WAITS_FOR_MANY, WAITS),
    **dict.fromkeys((*(f"os.{name}" for name in ENDS), *SPAWNS), APART),
}
FILLED = Reason(
    "workers-fill",
    "workers of a DataLoader may fill what is made here: rank 0 alone has them, and other ranks find old values",
    "return it with the batch, or load without workers; accept this if the main flow never looks at it",
)
SAME_NAME = Reason("same-name", "each rank would make this memory, by the same name", "leave its name out")
CHANGED = Reason(
    "pool-changes", "what runs here changes `{what}`, which the other ranks do not see", HAND_OVER
)
SIGNAL = Reason(
    "signal-handler",
    "a signal reaches one rank, or each at another step, and ranks that part ways wait for each other: stop the run by "
    "a file or a number of epochs instead",
)
DEBUGGER = Reason("debugger", "{name}() waits for a person", "take it out")
STOPS = Reason(
    "debugger-behind-condition",
    "{name}() would stop every rank, without a prompt for most: debug the original",
)


class OwnProcesses(Rule):
    examples = (
        diff("""
              import queue
              import threading
              def fill(batches):
                  batches.put(load())
            - batches = queue.Queue(8)
            - threading.Thread(target=fill, args=(batches,)).start()
            + batches = hold_on_rank0(queue.Queue, 8)
            + hold_on_rank0(threading.Thread, target=fill, args=(batches,)).start()
        """),
        flags("""
            # threading.Thread() changes `found`
            # os._exit
            # breakpoint() waits for a person
            import os
            import threading
            found = []
            def fill():
                found.append(load())
            threading.Thread(target=fill).start()
            breakpoint()
            os._exit(0)
        """),
        Untouched("""
            import signal
            import torch.multiprocessing as mp
            signal.signal(signal.SIGINT, signal.SIG_DFL)
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
                loads = goes_through(module, call) and loads_without_workers(module.program)
                why = why_not(module, call) or (LOADS if loads else None)
                yield Hazard(call.node, why) if why else call_by(call.node, "hold_on_rank0", BECAUSE)
            elif _is_met_at(module.program, call):
                yield call_by(call.node, "hold_on_rank0", BECAUSE)
            elif is_shared_memory(call) and has_workers(module.program):
                yield Hazard(call.node, FILLED)
            elif call.name == NAMED and (call.argument(0, "name") and call.argument(1, "create")):
                yield Hazard(call.node, SAME_NAME)
            elif call.name in REFUSED and not _is_other_mode(module, call):
                yield Hazard(call.node, REFUSED[call.name].of(name=call.name))
            elif does(call.name) is Does.HANDLE_SIGNAL:
                handler = module.name(call.argument(1, "handler")) or ""
                if not handler.startswith("signal."):  # a function of the script's, not `SIG_DFL`
                    yield Note(call.node, SIGNAL)
            elif does(call.name) is Does.ASK_PERSON:
                name = (call.name or "").removeprefix("builtins.")
                is_optional = is_guarded(module, call.node)
                because = (STOPS if is_optional else DEBUGGER).of(name=name)
                yield Note(call.node, because) if is_optional else Hazard(call.node, because)
        for node, name in handed_on(module, names=STARTERS):
            yield Hazard(node, UNFOLLOWED.of(starter=f"{name}()"))
        for node, _ in handed_on(module, names=MEETING_POINTS) if _has_starters(module.program) else ():
            yield hand_on(module, node, "hold_on_rank0", BECAUSE)
        for call, leak in leaks_in_pools(module) if _has_starters(module.program) else ():
            yield Hazard(call.node, CHANGED.of(what=leak))


def _is_met_at(program: Program, call: Call) -> bool:
    """Whether the main flow meets threads, processes or workers at what is made; workers count in a Value."""
    name = call.name or ""
    if name not in MEETING_POINTS:
        return False
    of_workers = (
        name.startswith("multiprocessing.") and name != "multiprocessing.Array" and has_workers(program)
    )
    return name == "multiprocessing.Value" or of_workers or _has_starters(program)


@lru_cache(maxsize=1)
def _has_starters(program: Program) -> bool:
    """Whether anything of the program that can run starts threads or processes."""
    return any(is_starter(each, call) and program.reach.runs(each, call.node) for each, call in program.calls)


def _is_other_mode(module: Module, spawn: Call) -> bool:
    """Whether processes are spawned behind a flag, for a function that is called as it is without the flag."""
    function = spawn.argument(0, "fn")
    called = module.definition(function) if function else None
    return called is not None and is_guarded(module, spawn.node) and any(module.program.calls_of(*called))
