"""DDP701: the ranks join a process group, and leave it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Import, InsertAfter, InsertBefore, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.idiomatic.loading import read_loaders
from dp2ddp.codemod.idiomatic.once import read_once
from dp2ddp.codemod.idiomatic.process_names import ProcessNames
from dp2ddp.codemod.idiomatic.wrapping import needs_cuda
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

LEAVES = ("sys.exit", "builtins.exit", "builtins.quit", "os._exit")


class ProcessGroup(Rule):
    """Join a process group before anything happens, and leave it at the end.

    ## What it does
    Puts `dist.init_process_group(...)`, `torch.cuda.set_device(local_rank)` and the names that other lines need
    (`rank`, `world_size`) where the exact style joins (DDP101), and `dist.destroy_process_group()` behind the last
    statement. The backend is NCCL; where the script also trains without CUDA, gloo takes its place there.

    ## Why
    torchrun starts one process for each GPU; each has to know which it is, and which GPU is its own.

    ## Safety
    The script needs torchrun from now on: without it LOCAL_RANK is missing, and it says so at once. Where the model is
    wrapped only if there is CUDA, a start without CUDA fails at NCCL, and does not train ranks apart.

    ## References
    pytorch.org/tutorials/intermediate/ddp_tutorial.html; docs/idiomatic.md.
    """

    code = "DDP701"
    name = "idiomatic-process-group"
    nodes = ("BaseStatement",)
    examples = (
        Rewrites(
            before="""
                import torch
                from torch import nn

                BATCH = 32

                print("training")
                net = nn.DataParallel(nn.Linear(2, 2).cuda())
            """,
            after="""
                import torch
                from torch import nn

                BATCH = 32

                local_rank = int(os.environ["LOCAL_RANK"])
                torch.cuda.set_device(local_rank)
                dist.init_process_group("nccl")
                rank = dist.get_rank()

                print("training")
                net = nn.DataParallel(nn.Linear(2, 2).cuda())
                dist.destroy_process_group()
            """,
        ),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.is_entry or not facts.all_wraps:
            return
        act = facts.entry.first_act
        if act is None:
            yield Hazard(
                facts.wraps[0].call.node if facts.wraps else facts.script.tree.body[0],
                "nothing runs when this file is started, so there is no place where the ranks could join",
                "convert the script that starts the training",
            )
            return
        because = "each rank joins, and takes its own GPU"
        yield InsertBefore(act, "\n".join(_joining(facts)), because)
        yield from ProcessNames(facts).imports(because)
        yield Import("os", None, because)
        yield Import("torch", None, because)
        yield from _leaving(facts)


def _joining(facts: Facts) -> Iterator[str]:
    words = ProcessNames(facts)
    dist = words.dist
    index = "local_rank" if words.has("local_rank") else 'int(os.environ["LOCAL_RANK"])'
    if index == "local_rank":
        yield 'local_rank = int(os.environ["LOCAL_RANK"])'
    if needs_cuda(facts):
        yield f"torch.cuda.set_device({index})"
        yield f'{dist}.init_process_group("nccl")'
    else:
        yield "if torch.cuda.is_available():"
        yield f"    torch.cuda.set_device({index})"
        yield f'{dist}.init_process_group("nccl" if torch.cuda.is_available() else "gloo")'
    needed = {
        "rank": words.has("rank") and _needs_rank(facts),
        "world_size": words.has("world_size") and _needs_world(facts),
    }
    names = [name for name, is_needed in needed.items() if is_needed]
    if names:
        yield f"{', '.join(names)} = {', '.join(f'{dist}.get_{name}()' for name in names)}"


def _needs_rank(facts: Facts) -> bool:
    once = read_once(facts)
    downloads = any(call.keyword("download") for call in facts.script.calls)
    return bool(once.runs or once.made or once.bars or downloads)


def _needs_world(facts: Facts) -> bool:
    trains = any(loading.trains and loading.script is facts.script for loading in read_loaders(facts))
    return trains or any(True for _ in facts.script.calls_of("torch.cuda.device_count"))


def _leaving(facts: Facts) -> Iterator[Finding]:
    body = facts.script.tree.body
    act = facts.entry.first_act
    block = next((branch.body for branch in body if isinstance(branch, ast.If) and act in branch.body), body)
    last = block[-1]
    called = last.value.func if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
    if facts.script.scopes.name(called) in LEAVES:
        yield Note(
            last,
            "the script leaves here, before it could destroy the process group: torch may warn of that",
        )
        return
    yield InsertAfter(last, f"{ProcessNames(facts).dist}.destroy_process_group()", "the ranks leave together")
