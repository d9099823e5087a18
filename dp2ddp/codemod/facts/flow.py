"""The way of a batch through a loop: from the loader, by device moves, into one forward, and what is used behind.

Only where all of that can be listed may the ranks' rows stay apart until the forward (join=outputs).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.aliases import handed_over
from dp2ddp.codemod.facts.batch_loops import BatchLoop, follow_batch
from dp2ddp.codemod.facts.loader_names import LoaderNames, NotFollowedError, find_loader_names
from dp2ddp.codemod.facts.loaders import Loader
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.training import Training
from dp2ddp.codemod.facts.uses import running_copies
from dp2ddp.codemod.facts.wrapped import other_models

WRAPPERS_OF_LOADERS = (
    "builtins.enumerate",
    "tqdm.tqdm",
    "tqdm.auto.tqdm",
    "tqdm.notebook.tqdm",
    "tqdm.std.tqdm",
)
QUESTIONS_TO_LOADERS = {"dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "num_workers"}


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
    for name in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(name, (ast.Name, ast.Attribute))
        if not isinstance(name.ctx, ast.Load) or name in names.handed_out:
            continue
        node: ast.AST | None = name if script.told(name) in names.plain else None
        if script.told(name) in names.several:
            node = _one_of_several(script, name)
        loop = _loop_over(script, node) if node is not None else None
        if loop is not None:
            yield loop
        elif node is not None and not _is_question(script, node):
            raise NotFollowedError(f"`{script.told(name)}` is used outside of a plain loop", name)


def _one_of_several(script: Script, name: ast.expr) -> ast.AST:
    """`loaders["train"]`, read, of a dict or list of loaders."""
    parent = script.scopes.parents[name]
    if isinstance(parent, ast.Subscript) and parent.value is name and isinstance(parent.ctx, ast.Load):
        return parent
    raise NotFollowedError(f"`{script.told(name)}` is used as a whole", name)


def _loop_over(script: Script, node: ast.AST) -> ast.For | None:
    """`for x, y in loader`, with enumerate and tqdm around it."""
    parent = script.scopes.parents[node]
    while isinstance(parent, ast.Call) and parent.args[:1] == [node]:
        if script.scopes.name(parent.func) not in WRAPPERS_OF_LOADERS:
            return None
        node, parent = parent, script.scopes.parents[parent]
    return parent if isinstance(parent, ast.For) and parent.iter is node else None


def _is_question(script: Script, node: ast.AST) -> bool:
    parent = script.scopes.parents[node]
    match parent:
        case ast.Attribute(attr=attr):
            return attr in QUESTIONS_TO_LOADERS
        case ast.Call(func=func):
            name = script.scopes.name(func)
            return _is_parameter(script, parent, node) or name in ("builtins.len", "builtins.print")
        case ast.keyword():
            call = script.scopes.parents[parent]
            return isinstance(call, ast.Call) and _is_parameter(script, call, node)
    return False


def _is_parameter(script: Script, call: ast.Call, given: ast.AST) -> bool:
    """Whether a function of the script has a name for what it is given (and does not take it by `*loaders`)."""
    if not isinstance(script.scopes.definition(call.func), ast.FunctionDef):
        return False
    return any(one is given for _, one in handed_over(script, call))


def _check_forwards(script: Script, loops: tuple[BatchLoop, ...], training: Training) -> None:
    followed = [loop.forward for loop in loops]
    for forward in training.forwards:
        if script.scopes.statement(forward) not in followed:
            raise NotFollowedError(
                "the wrapped model is also run on something else than a batch of a loader", forward
            )
    if not loops:
        raise NotFollowedError("no loop over a loader is found", script.tree)
