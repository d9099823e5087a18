"""DDP609: a wrapped model that one rank runs alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

HAS_BUFFERS = re.compile(r"BatchNorm|resnet|densenet|mobilenet|efficientnet|register_buffer", re.IGNORECASE)


class WrapperOnOneRank(CheckRule):
    """One rank alone runs the wrapped model, and waits for the others.

    ## What it does
    Finds a call of the wrapper itself under `if rank == 0:`, or of a function of the file that calls what it is
    given, where gradients are on or the file's models have buffers. In a script that dp2ddp converted, of its
    wrapper, always: that joins the outputs of all ranks.

    ## Why
    The wrapper's forward sends rank 0's buffers to all ranks, in evaluation, too, and its backward sums
    gradients. So the rank waits for ranks that do something else: it hangs, or meets another collective of
    theirs.

    ## Safety
    Silent with `broadcast_buffers=False`, under `no_grad` in files that name no layer with buffers, and where the
    other branch runs the wrapper, too.

    ## References
    https://github.com/dmlc/dgl/pull/4385, https://github.com/pytorch/pytorch/issues/89716.
    """

    code = "DDP609"
    name = "wrapper-on-one-rank"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for epoch in range(3):
                    train(model)
                    if dist.get_rank() == 0:
                        out = model(x)
            """,
            message="model.module",
        ),
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                from torchvision.models import resnet18
                @torch.no_grad()
                def test(net):
                    return net(x).argmax(1)
                model = DistributedDataParallel(resnet18())
                for epoch in range(3):
                    train(model)
                    if dist.get_rank() == 0:
                        test(model)
            """,
            message="model.module",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for epoch in range(3):
                    train(model)
                    if dist.get_rank() == 0:
                        out = model.module(x)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        yield from _whole_batches_on_one_rank(script)
        for call in script.module.calls:
            called = [(call.node.func, call.node), *((argument, call.node) for argument in call.node.args)]
            for place, (mention, node) in enumerate(called):
                wrap = script.wrap_behind(mention)
                if wrap is None or literal(wrap.argument(None, "broadcast_buffers")) is False:
                    continue
                condition = script.ranks.one_rank_condition(node)
                if condition is None or node is wrap.node or _others_run_it(script, condition, node, mention):
                    continue
                run = node if place == 0 else _run_in(script, node, place - 1)
                if run is not None and (_may_have_buffers(script) or not script.is_without_gradient(run)):
                    yield Problem(node, *_words(script.file.text_of(mention)))


def _may_have_buffers(script: DDPScript) -> bool:
    return script.names_module("torchvision.models") or script.has_word(HAS_BUFFERS)


def _whole_batches_on_one_rank(script: DDPScript) -> Iterator[Problem]:
    """The same of the wrappers of a converted script, which join outputs in every forward."""
    wraps = script.whole_batch_wraps
    for call in script.module.calls if wraps else ():
        for place, mention in enumerate((call.node.func, *call.node.args)):
            wrap = script.wrap_behind(mention, wraps)
            condition = script.ranks.one_rank_condition(call.node)
            if wrap is None or condition is None or not script.ranks.asks_now(condition.test):
                continue
            runs = place == 0 or _run_in(script, call.node, place - 1) is not None
            if runs and not _others_run_it(script, condition, call.node, mention):
                yield Problem(call.node, *_words(script.file.text_of(mention)))


def _words(wrapper: str) -> tuple[str, str]:
    return (
        f"one rank alone runs the wrapper `{wrapper}`, whose forward asks all ranks for their part",
        f"let all ranks come by, or run the model itself: {wrapper}.module",
    )


def _others_run_it(script: DDPScript, condition: ast.If, call: ast.Call, wrapper: ast.AST) -> bool:
    """Whether the other branch names the wrapper as well: the ranks meet in its forward, on two ways."""
    branches = (condition.body, condition.orelse)
    others = [
        node
        for branch in branches
        if not any(call in ast.walk(statement) for statement in branch)
        for statement in branch
        for node in ast.walk(statement)
    ]
    text = script.file.text_of(wrapper)
    return any(
        isinstance(node, (ast.Name, ast.Attribute)) and script.file.text_of(node) == text for node in others
    )


def _run_in(script: DDPScript, call: ast.Call, place: int) -> ast.Call | None:
    """Where a function of the file calls the parameter at a position."""
    function = script.file.definition(call.func)
    if not isinstance(function, ast.FunctionDef) or place >= len(function.args.args):
        return None
    name = function.args.args[place].arg
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return next((node for node in calls if isinstance(node.func, ast.Name) and node.func.id == name), None)
