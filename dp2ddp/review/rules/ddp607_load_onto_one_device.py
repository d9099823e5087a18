"""DDP607: a checkpoint that every rank loads onto the device that saved it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class LoadOntoOneDevice(CheckRule):
    """Every rank loads the checkpoint onto the device of the rank that saved it.

    ## What it does
    Finds a `torch.load` without `map_location` that goes into `load_state_dict`, in a file that saves
    checkpoints of a model on GPUs itself.

    ## Why
    A tensor is loaded to where it was saved from: GPU 0. So all ranks of a node allocate there, some hundred MB
    each and all of the checkpoint, until it runs out of memory.

    ## Safety
    Silent where the file saves nothing: weights that somebody else saved may come from the CPU; where they are
    moved there to be saved; where one rank alone loads, and where each has a file of its own.

    ## References
    https://github.com/pytorch/pytorch/issues/23138, https://github.com/pytorch/examples/issues/1078.
    """

    code = "DDP607"
    name = "load-onto-one-device"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                model = DistributedDataParallel(net.cuda(rank), device_ids=[rank])
                if resume:
                    model.load_state_dict(torch.load("last.pt"))
                if rank == 0:
                    torch.save(model.state_dict(), "last.pt")
            """,
            message="map_location",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                model = DistributedDataParallel(net.cuda(rank), device_ids=[rank])
                if resume:
                    model.load_state_dict(torch.load("last.pt", map_location="cpu"))
                if rank == 0:
                    torch.save(model.state_dict(), "last.pt")
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                model = DistributedDataParallel(net.cuda(rank), device_ids=[rank])
                net.load_state_dict(torch.load("resnet50.pth"))
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        on_gpu = any(wrap.argument(1, "device_ids") is not None for wrap in script.wraps)
        saves = [call for call in script.file.calls_of("torch.save") if not _is_of_the_cpu(script, call)]
        if not script.trains_on_ranks or not on_gpu or not saves:
            return
        for call in script.file.calls_of("torch.load"):
            if call.argument(1, "map_location") or _has_alternative(script, call):
                continue
            if _is_state(script, call) and not _is_own(script, call):
                yield Problem(
                    call.node,
                    "without map_location every rank loads onto the GPU of the rank that saved",
                    'pass map_location="cpu", or the rank\'s own device',
                )


def _is_of_the_cpu(script: DDPScript, save: Call) -> bool:
    """Whether the function that saves moves something to the CPU."""
    function = script.sites.function_of(save.node)
    scope = save.node if isinstance(function, ast.Module) else function
    return any(isinstance(node, ast.Attribute) and node.attr == "cpu" for node in ast.walk(scope))


def _is_own(script: DDPScript, load: Call) -> bool:
    """Whether a rank loads what no other rank loads, or what it has in memory; what `**options` say is not seen."""
    path = load.argument(0, "f")
    return (
        script.ranks.one_rank_condition(load.node) is not None
        or (path is not None and (script.ranks.may_ask(path) or script.is_open_file(path)))
        or any(keyword.arg is None for keyword in load.node.keywords)
    )


def _has_alternative(script: DDPScript, call: Call) -> bool:
    """Whether another branch of an `if` around it loads with a map_location."""
    inner: ast.AST = call.node
    for parent in script.module.around(call.node):
        if isinstance(parent, ast.If):
            others = parent.orelse if inner in parent.body else parent.body
            nodes = (node for statement in others for node in ast.walk(statement))
            if any(isinstance(node, ast.keyword) and node.arg == "map_location" for node in nodes):
                return True
        inner = parent
    return False


def _is_state(script: DDPScript, call: Call) -> bool:
    """Whether what is loaded, or an entry of it, goes into load_state_dict."""
    mentions = [call.node, *script.uses_of(call.node)]
    around = [parent for mention in mentions for parent in list(script.module.around(mention))[:2]]
    functions = [parent.func for parent in around if isinstance(parent, ast.Call)]
    return any(
        isinstance(function, ast.Attribute) and function.attr == "load_state_dict" for function in functions
    )
