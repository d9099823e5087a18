"""DDP504: TensorBoard, W&B and other trackers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import TRACKER_STATE
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.codemod.whereabouts import only_in_main_flow


class Tracker(Rule):
    """Report one run, not one per rank.

    ## What it does
    `SummaryWriter(...)` becomes `object_on_rank_zero(SummaryWriter, ...)`: rank 0 has the writer, the others
    have an object that takes every call and does nothing. The same for visdom, wandb.init and their like; calls
    such as wandb.log run on rank 0.

    ## Why
    W ranks make W event files or W runs, W-1 of them doubles.

    ## Safety
    The lines that write scalars, images and figures stay as they are. `wandb.config` and `wandb.run` are set by
    wandb.init alone, so on other ranks they are empty: a hazard.

    ## References
    SEMANTICS 75.
    """

    code = "DDP504"
    name = "tracker"
    examples = (
        Rewrites(
            before="""
                import torch
                from torch.utils.tensorboard import SummaryWriter
                net = torch.nn.DataParallel(net)
                writer = SummaryWriter("runs")
                writer.add_scalar("loss", 1.0, 0)
            """,
            after="""
                import torch
                from torch.utils.tensorboard import SummaryWriter
                net = torch.nn.DataParallel(net)
                writer = object_on_rank_zero(SummaryWriter, "runs")
                writer.add_scalar("loss", 1.0, 0)
            """,
        ),
        Rewrites(
            before="""
                import importlib
                import torch
                net = torch.nn.DataParallel(net)
                writer = importlib.import_module(module).SummaryWriter("runs")
            """,
            after="""
                import importlib
                import torch
                net = torch.nn.DataParallel(net)
                writer = object_on_rank_zero(importlib.import_module(module).SummaryWriter, "runs")
            """,
        ),
        Flags(
            before="""
                import torch
                import wandb
                net = torch.nn.DataParallel(net)
                lr = wandb.config.lr
            """,
            message="wandb.config",
        ),
        Untouched('import torch\nnet = torch.nn.DataParallel(net)\nwriter.add_scalar("loss", 1.0, 0)'),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "one run, one tracker: rank 0's"
        for effect in facts.effects:
            if effect.kind not in ("tracker", "tracker call"):
                continue
            hazard = only_in_main_flow(facts, effect.call.node, f"{ast.unparse(effect.call.node.func)}()")
            if hazard:
                yield hazard
            else:
                yield PassTo(effect.call.node, facts.names.helper("object_on_rank_zero"), because)
                yield Lift("object_on_rank_zero", because)
        yield from _states(facts)


def _states(facts: Facts) -> Iterator[Finding]:
    for node in facts.script.nodes(ast.Attribute):
        if facts.script.scopes.name(node) in TRACKER_STATE:
            told = ast.unparse(node)
            yield Hazard(
                node,
                f"{told} exists on rank 0 only",
                "read the setting from where you set it (args, a dict), not from the tracker",
            )
