"""DDP619: an optimizer whose state stays on the device that the model leaves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level


class OptimizerBeforeMove(CheckRule):
    """The optimizer keeps its state on the CPU, and the model goes to the GPU.

    ## What it does
    Finds `Adagrad` made of a model's parameters, and the model moved afterwards.

    ## Why
    Adagrad makes its sums when it is made, on the device of the parameters then. Its first step meets
    parameters on the GPU and sums on the CPU: RuntimeError. Other optimizers make their state in the first
    step, and are not found.

    ## Safety
    Found where both stand in one function, one after the other, and the model is moved to a GPU for certain.

    ## References
    https://github.com/pytorch/pytorch/issues/76752, https://github.com/pytorch/pytorch/issues/7321.
    """

    code = "DDP619"
    name = "optimizer-before-move"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.optim import Adagrad
                optimizer = Adagrad(net.parameters(), lr=0.1)
                net = net.cuda()
                model = DistributedDataParallel(net)
            """,
            message="stays on the CPU",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.optim import Adagrad
                net = net.cuda()
                optimizer = Adagrad(net.parameters(), lr=0.1)
                model = DistributedDataParallel(net)
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                from torch.optim import SGD
                optimizer = SGD(net.parameters(), lr=0.1)
                net = net.cuda()
                model = DistributedDataParallel(net)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not script.wraps:
            return
        for maker in script.file.calls_of("torch.optim.Adagrad", "torch.optim.adagrad.Adagrad"):
            match maker.argument(0, "params"):
                case ast.Call(func=ast.Attribute(value=ast.Name() as model, attr="parameters")):
                    moves = list(_moves_of(script, model))
                    if moves and all(move.node.lineno > maker.node.lineno for move in moves):
                        yield Problem(
                            maker.node,
                            "its state is made here and stays on the CPU, and the model moves to the GPU afterwards",
                            "move the model first, then make the optimizer",
                        )


def _moves_of(script: DDPScript, model: ast.Name) -> Iterator[Call]:
    """Where a model is moved to a GPU, in the function of a mention of it."""
    for call in script.module.calls:
        owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and script.file.variable(owner) == script.file.variable(model):
            device = literal(call.argument(0, "device"))
            if call.method == "cuda" or call.method == "to" and str(device).startswith("cuda"):
                yield call
