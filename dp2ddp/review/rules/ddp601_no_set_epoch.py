"""DDP601: a DistributedSampler whose epoch is never set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

TAKES_A_LOADER = ("builtins.", "tqdm.")


class NoSetEpoch(CheckRule):
    """Every epoch has the same order: `set_epoch` is never called.

    ## What it does
    Finds a `DistributedSampler` that shuffles, whose loader is iterated again and again to train, and no
    `set_epoch` anywhere in it.

    ## Why
    The sampler draws its order from `seed + epoch`, and `epoch` stays 0 until somebody sets it. So all epochs have
    one order, and a rank sees the same share of the data again and again, in the same batches.

    ## Safety
    Silent where the sampler or its loader leaves the file (returned, handed to a function of another file), and where a
    framework owns the loop.

    ## References
    https://github.com/pytorch/pytorch/issues/31771, https://github.com/yangkky/distributed_tutorial/issues/5.
    """

    code = "DDP601"
    name = "no-set-epoch"
    level = Level.ERROR
    examples = (
        Flags(
            before="""
                from torch.nn.parallel import DistributedDataParallel
                from torch.utils.data import DataLoader, DistributedSampler
                model = DistributedDataParallel(model)
                loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
                for epoch in range(10):
                    for x, y in loader:
                        model(x, y).backward()
            """,
            message="set_epoch",
        ),
        Untouched("""
            from torch.nn.parallel import DistributedDataParallel
            from torch.utils.data import DataLoader, DistributedSampler
            model = DistributedDataParallel(model)
            sampler = DistributedSampler(data)
            loader = DataLoader(data, batch_size=32, sampler=sampler)
            for epoch in range(10):
                sampler.set_epoch(epoch)
                for x, y in loader:
                    loss = model(x, y)
        """),
        Untouched("""
            from torch.nn.parallel import DistributedDataParallel
            from torch.utils.data import DataLoader, DistributedSampler
            model = DistributedDataParallel(model)
            loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
            for step, (x, y) in enumerate(loader):  # one epoch
                model(x, y).backward()
                print(step, len(loader))
        """),
        Untouched("""
            from torch.nn.parallel import DistributedDataParallel
            from torch.utils.data import DataLoader, DistributedSampler
            from engine import train_one_epoch
            model = DistributedDataParallel(model)
            loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
            for epoch in range(10):
                train_one_epoch(model, loader)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if script.has_framework or script.mentions("set_epoch"):
            return
        for loader, sampler in script.sampler_of.items():
            shuffle = sampler.argument(3, "shuffle")
            if shuffle is not None and literal(shuffle) is not True:
                continue
            trains = any(script.trains_in(loop) for loop in script.loops_over(loader))
            if trains and is_iterated_anew(script, loader):
                yield Problem(
                    sampler.node,
                    "set_epoch() is never called, so every epoch has the order of the first",
                    "call sampler.set_epoch(epoch) at the start of each epoch",
                )


def is_iterated_anew(script: DDPScript, loader: ast.Call) -> bool:
    """Whether a loop of this file runs through a loader more than once, and nothing outside the file sees it."""
    variable = script.variable_of(loader)
    if variable is None:
        return False
    uses = script.uses_of(loader)
    iterated = [use for use in uses if not _is_measured(script, use)]
    return all(_stays_here(script, use) for use in uses) and any(
        _in_outer_loop(script, use) for use in iterated
    )


def _is_measured(script: DDPScript, use: ast.AST) -> bool:
    """`len(loader)`, which is no pass over it."""
    parent = script.module.parents[use]
    return isinstance(parent, ast.Attribute) or (
        isinstance(parent, ast.Call) and script.module.name(parent.func) == "builtins.len"
    )


def _stays_here(script: DDPScript, use: ast.AST) -> bool:
    """Iterated, measured, or given to something that does no more than that: no one else can set the epoch."""
    parent = script.module.parents[use]
    if isinstance(parent, ast.Call) and use in parent.args:
        name = script.module.name(parent.func) or ""
        return name.startswith(TAKES_A_LOADER) or _is_own_function(script, parent)
    return isinstance(parent, (ast.For, ast.comprehension)) or (
        isinstance(parent, ast.Attribute) and parent.attr in ("dataset", "batch_size")
    )


def _is_own_function(script: DDPScript, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in script.file.methods_by_name
    return isinstance(script.file.definition(call.func), ast.FunctionDef)


def _in_outer_loop(script: DDPScript, use: ast.AST) -> bool:
    """Whether a use stands in a loop that is not the loop over it."""
    inner = use
    for parent in script.module.around(use):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any(script.sites.loop_around(site) is not None for site in script.sites.sites_of(parent))
        if isinstance(parent, (ast.For, ast.While)) and inner is not getattr(parent, "iter", None):
            return True
        inner = parent
    return False
