"""The way of a batch through a loop: from the loader, by device moves, into one forward, and what is used behind.

Only where all of that can be listed may the ranks' rows stay apart until the forward (join=outputs).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.batch_loops import BatchLoop, follow_batch
from dp2ddp.codemod.facts.loader_names import LoaderNames, NotFollowedError, find_loader_names
from dp2ddp.codemod.facts.loaders import Loader
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.training import Training
from dp2ddp.codemod.facts.uses import running_copies
from dp2ddp.codemod.facts.wrapped import other_models

QUESTIONS_TO_LOADERS = {
    *("dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "num_workers"),
    *(
        "set_description",
        "set_description_str",
        "set_postfix",
        "set_postfix_str",
        "close",
    ),  # to progress bars
}


@dataclass(frozen=True, eq=False)
class Flow:
    """All loops of a script, or the first thing that keeps them from being followed."""

    loops: tuple[BatchLoop, ...]
    stopper: str | None


def find_flow(
    script: Script, wraps: tuple[Wrap, ...], loaders: tuple[Loader, ...], training: Training
) -> Flow:
    """Follow every batch; the first obstacle ends it."""
    try:
        _check_wraps(script, wraps, training)
        names = find_loader_names(script, loaders)
        tuples = all(loader.tuples for loader in loaders)
        loops = tuple(follow_batch(script, loop, training, tuples) for loop in _loops(script, names))
        _check_forwards(script, loops, training)
    except NotFollowedError as stopper:
        return Flow((), f"{stopper} ({script.where(stopper.node)})")
    return Flow(loops, None)


def _check_wraps(script: Script, wraps: tuple[Wrap, ...], training: Training) -> None:
    if training.use_stopper:
        raise NotFollowedError(training.use_stopper.why, training.use_stopper.node)
    for wrap in wraps:
        if wrap.dim_value != 0:
            raise NotFollowedError(
                "the batch is split along another dimension than the first", wrap.call.node
            )
        if any("." in name.removeprefix("self.") for name in wrap.names):
            raise NotFollowedError("the wrapped model is not a plain name", wrap.call.node)
        if len({name for one in wraps for name in one.names}) > 1:
            raise NotFollowedError("several models are wrapped", wrap.call.node)
        if any(isinstance(one, (ast.For, ast.While)) for one in script.scopes.ancestors(wrap.call.node)):
            raise NotFollowedError("the model is wrapped in a loop", wrap.call.node)
    copied = next(running_copies(script, training.names), None)
    if copied:
        raise NotFollowedError("a copy of the wrapped model may be run on whole batches", copied)
    other = next(other_models(script, wraps, training.names), None)
    if other:
        raise NotFollowedError(other.why, other.node)


def _loops(script: Script, names: LoaderNames) -> Iterator[ast.For]:
    """The loops over loaders; any other use of a loader, beside questions to it, is an obstacle."""
    places = {node: place for place, node in enumerate(script.scopes.nodes)}
    for use in sorted(names.uses, key=places.__getitem__):
        loop = _loop_over(script, use)
        if loop is not None:
            yield loop
        elif not _is_question(script, use):
            raise NotFollowedError(f"`{script.told(use)}` is used outside of a plain loop", use)


def _loop_over(script: Script, node: ast.AST) -> ast.For | None:
    """`for x, y in loader`, with enumerate around it; progress bars are loaders themselves."""
    parent = script.scopes.parents[node]
    if (
        isinstance(parent, ast.Call)
        and parent.args[:1] == [node]
        and script.scopes.name(parent.func) == "builtins.enumerate"
    ):
        node, parent = parent, script.scopes.parents[parent]
    return parent if isinstance(parent, ast.For) and parent.iter is node else None


def _is_question(script: Script, node: ast.AST) -> bool:
    """What is asked about a loader, and does not read it."""
    parent = script.scopes.parents[node]
    match parent:
        case ast.Attribute(attr=attr):
            return attr in QUESTIONS_TO_LOADERS
        case ast.Call(func=func):
            return script.scopes.name(func) in ("builtins.len", "builtins.print")
        case ast.Compare(comparators=[ast.Constant(value=None)]) | ast.If():
            return True
    return False


def _check_forwards(script: Script, loops: tuple[BatchLoop, ...], training: Training) -> None:
    followed = [loop.forward for loop in loops]
    for forward in training.forwards:
        if script.scopes.statement(forward) not in followed:
            raise NotFollowedError(
                "the wrapped model is also run on something else than a batch of a loader", forward
            )
    if not loops:
        raise NotFollowedError("no loop over a loader is found", script.tree)
