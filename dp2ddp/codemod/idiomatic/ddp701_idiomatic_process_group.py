"""Join a process group before anything happens, and leave it at the end.

Puts `dist.init_process_group("nccl")` and `torch.cuda.set_device(local_rank)` before the first statement that does
more than define, with the names that other lines need, and `dist.destroy_process_group()` behind the last one.
Ranks other than 0 print and log nothing from then on.

torchrun starts one process for each GPU; each has to know which it is, and which GPU is its own. What is printed is
printed once, as torchvision's references do it.

The script needs torchrun from now on: without it LOCAL_RANK is missing, and it says so at once. A script that has a
distributed mode of its own is better started in that.

pytorch.org/tutorials/intermediate/ddp_tutorial.html; docs/idiomatic.md.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertAfter, InsertBefore
from dp2ddp.codemod.idiomatic.ddp702_idiomatic_wrap import trains_beside, unseeded
from dp2ddp.codemod.idiomatic.ddp704_idiomatic_training_loader import loaders_of
from dp2ddp.codemod.idiomatic.new_names import words_of
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.own_mode import is_guarded
from dp2ddp.codemod.looks.start import LAUNCHER, join_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import is_main_guard
from dp2ddp.codemod.rule import Rule, diff, flags
from dp2ddp.codemod.rules.ddp101_start import NOTHING_RUNS
from dp2ddp.codemod.rules.ddp901_already_distributed import SEVERAL_PROCESSES

BECAUSE = "each rank joins, and takes its own GPU"
LEAVES = ("sys.exit", "builtins.exit", "builtins.quit", "os._exit")


class ProcessGroup(Rule):
    everywhere = True  # torchrun may start a mode that nothing else does
    examples = (
        diff("""
              import os
              import sys
              import torch
              from torch import nn
              import torch.distributed as dist

              BATCH = 32

            + local_rank = int(os.environ["LOCAL_RANK"])
            + torch.cuda.set_device(local_rank)
            + dist.init_process_group("nccl")
            + rank = dist.get_rank()
            + if rank != 0:
            +     sys.stdout = open(os.devnull, "w")  # rank 0 prints
            +
              print("training")
              net = nn.DataParallel(nn.Linear(2, 2).cuda())
            + dist.destroy_process_group()
        """),
        flags("""
            # several processes
            import torch
            torch.distributed.init_process_group("nccl")
            net = torch.nn.DataParallel(net)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if does(call.name) is Does.DISTRIBUTE and _may_run(module, call):
                yield Hazard(call.node, SEVERAL_PROCESSES.of(name=call.name))
        if module is not module.program.entry:
            return
        join = join_of(module)
        if join is None:
            yield Hazard(module.tree.body[0], NOTHING_RUNS)
            return
        yield InsertBefore(join.before, "\n".join(_lines(module)), BECAUSE)
        guards = (each for each in module.tree.body if isinstance(each, ast.If) and is_main_guard(each))
        last = next((each.body for each in guards if join.before in each.body), module.tree.body)[-1]
        called = last.value.func if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
        if module.name(called) not in LEAVES:
            yield InsertAfter(last, f"{words_of(module)['dist']}.destroy_process_group()", "the ranks leave")


def _may_run(module: Module, call: Call) -> bool:
    """Whether it runs whatever a person chooses: always, or by what torchrun says in the environment."""
    asks_environment = any(
        node.value in LAUNCHER and isinstance(each.parents[node], (ast.Compare, ast.Call))
        for each in module.program.modules
        for node in each.all(ast.Constant)
    )
    return asks_environment or not is_guarded(module, call.node)


def _lines(module: Module) -> Iterator[str]:
    program, words = module.program, words_of(module)
    index = words.code('int({os}.environ["LOCAL_RANK"])')
    if words.binds("local_rank"):
        yield f"local_rank = {index}"
        index = "local_rank"
    yield f"{words['torch']}.cuda.set_device({index})"
    yield words.code('{dist}.init_process_group("nccl")')
    shares = any(each.is_shared and each.module is module for each in loaders_of(program))
    names = [name for name in ("rank", *(("world_size",) if shares else ())) if words.binds(name)]
    if names:
        yield f"{', '.join(names)} = " + ", ".join(f"{words['dist']}.get_{name}()" for name in names)
    libraries = unseeded(program)
    if "torch" in libraries and trains_beside(program):
        yield words.code("{torch}.manual_seed(0)  # the same first weights on all ranks")
    elif libraries:
        yield f"# dp2ddp: each rank draws otherwise (splits, orders): set a seed of {', '.join(libraries)}"
    yield words.code("if {rank} != 0:")
    yield words.code('    {sys}.stdout = open({os}.devnull, "w")  # rank 0 prints')
    if any(name.startswith("logging.") for each in program.modules for name in each.mentions):
        yield words.code("    {logging}.disable()  # and logs")
