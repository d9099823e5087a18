"""What touches gradients beside one plain backward: autograd called by hand, hooks, frozen parameters.

DDP's reducer sums while backward runs, and each rank's gradient is multiplied by the world before it: whatever looks
at a parameter's gradient then sees another number than under DataParallel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.aliases import callee
from dp2ddp.codemod.facts.iterations import Region
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import CallSite, Script, literal
from dp2ddp.codemod.facts.uses import Stopper

AUTOGRAD = ("torch.autograd.grad", "torch.autograd.backward", "torch.func.", "torch.autograd.functional.")
CHECKPOINTS = ("torch.utils.checkpoint.",)
HOOKS = {"register_hook", "register_post_accumulate_grad_hook", "register_multi_grad_hook"}


def touched_gradients(script: Script, places: Places, reach: Reach) -> Iterator[Stopper]:
    """Anything in a file that makes or changes gradients in a way that DDP's reducer does not see."""
    for call in script.calls:
        if reach.holds(script, call.node):
            yield from _about_call(script, places, call)
    for node in script.nodes(ast.Attribute, ast.Constant):
        if not reach.holds(script, node):
            continue
        if isinstance(node, ast.Attribute) and node.attr == "backward":
            parent = script.scopes.parents[node]
            if not isinstance(parent, ast.Call) or parent.func is not node:
                yield Stopper("backward is handed on, and may run more than once", node)
        elif isinstance(node, ast.Constant) and node.value == "backward":
            yield Stopper("backward is called by its name, and may run more than once", node)


def _about_call(script: Script, places: Places, call: CallSite) -> Iterator[Stopper]:
    name = call.name or ""
    if name.startswith(AUTOGRAD) or name.startswith(CHECKPOINTS) and not _is_plain_checkpoint(places, call):
        yield Stopper(f"{name}() makes gradients that DDP's reducer does not see", call.node)
    if call.method == "backward" and (call.node.args or call.node.keywords):
        yield Stopper("backward() has arguments (retain_graph, create_graph or a gradient)", call.node)
    if (
        call.method == "backward"
        and places.of(call.node) is not ExecutionPlace.MAIN
        and callee(script, call.node) is None
    ):
        yield Stopper("backward() runs inside a forward", call.node)
    sparse = call.keyword("sparse")
    if sparse is not None and literal(sparse.value) is not False:
        yield Stopper("gradients may be sparse", call.node)
    if call.method in HOOKS:
        yield Stopper(f"{call.method}() looks at gradients while they are summed", call.node)
    if call.method == "half":
        yield Stopper("gradients in half precision would overflow earlier", call.node)


def _is_plain_checkpoint(places: Places, call: CallSite) -> bool:
    """Inside a forward and not reentrant: its backward is part of the one (docs/semantics.md#checkpointing)."""
    reentrant = call.keyword("use_reentrant")
    return (
        reentrant is not None
        and literal(reentrant.value) is False
        and places.of(call.node) is ExecutionPlace.FORWARD
    )


def frozen_parameters(script: Script, reach: Reach) -> Iterator[ast.expr]:
    """Where parameters (or inputs) are frozen or unfrozen."""
    for call in script.calls:
        by_name = call.name == "builtins.setattr" and literal(call.argument(1)) == "requires_grad"
        if (call.method == "requires_grad_" or by_name) and reach.holds(script, call.node):
            yield call.node
    for node in script.nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store) and reach.holds(script, node):
            yield node


def frozen_in_turn(script: Script, reach: Reach, region: Region) -> Iterator[Stopper]:
    """Between two turns is early enough: the wrapper looks at each forward which parameters are trained."""
    for node in frozen_parameters(script, reach):
        if region.holds(node):
            yield Stopper("parameters are frozen or unfrozen during a step", node)
