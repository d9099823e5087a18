"""DDP625: no_sync around the backward pass only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class ForwardOutsideNoSync(CheckRule):
    """`no_sync` stands around the backward pass only, and does nothing there.

    ## What it does
    Finds `with model.no_sync():` whose block differentiates and calls no model, where the forward came before
    it.

    ## Why
    The wrapper decides in its forward whether the next backward sums (measured: the gradients of two ranks are
    the same afterwards). So gradients travel in every step of an accumulation, which is what no_sync was to
    save.

    ## Safety
    Found where the block holds nothing but the backward pass.

    ## References
    https://github.com/pytorch/PiPPy/issues/1133, https://github.com/KellerJordan/modded-nanogpt/pull/31.
    """

    code = "DDP625"
    name = "forward-outside-no-sync"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for x, y in loader:
                    loss = criterion(model(x), y)
                    with model.no_sync():
                        loss.backward()
            """,
            message="forward",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for x, y in loader:
                    with model.no_sync():
                        loss = criterion(model(x), y)
                    with model.no_sync():
                        loss.backward()
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for x, y in loader:
                    with model.no_sync():
                        loss = criterion(model(x), y)
                        loss.backward()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        for block in script.module.nodes(ast.With):
            assert isinstance(block, ast.With)
            for item in block.items:
                match item.context_expr:
                    case ast.Call(func=ast.Attribute(value=wrapper, attr="no_sync")):
                        if _only_differentiates(block) and _ran_before(script, block, wrapper):
                            yield Problem(
                                item.context_expr,
                                "does nothing: the forward, which came before, has decided to sum the gradients",
                                "put the forward pass into the block as well",
                            )


def _only_differentiates(block: ast.With) -> bool:
    calls = [node for statement in block.body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    words = [call.func.attr if isinstance(call.func, ast.Attribute) else "" for call in calls]
    return "backward" in words and set(words) <= {"backward", "scale"}


def _ran_before(script: DDPScript, block: ast.With, wrapper: ast.expr) -> bool:
    """Whether the wrapper is called further up, in the same turn of a loop."""
    turn = script.sites.loop_around(block) or script.sites.function_of(block)
    text = script.file.text_of(wrapper)
    return any(
        isinstance(node, ast.Call)
        and script.file.text_of(node.func) == text
        and node.lineno < block.lineno
        and not _is_without_sync(script, node)
        for node in ast.walk(turn)
    )


def _is_without_sync(script: DDPScript, node: ast.AST) -> bool:
    """Whether a forward stands under no_sync itself: the gradients stay where they are, then."""
    return any(
        isinstance(item.context_expr, ast.Call)
        and isinstance(item.context_expr.func, ast.Attribute)
        and item.context_expr.func.attr == "no_sync"
        for parent in script.module.around(node)
        if isinstance(parent, ast.With)
        for item in parent.items
    )
