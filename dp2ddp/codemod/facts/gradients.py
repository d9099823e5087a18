"""What touches gradients beside one plain backward: autograd called by hand, hooks, frozen parameters, penalties.

DDP's reducer sums while backward runs, and each rank's gradient is multiplied by the world before it: whatever looks
at a parameter's gradient then sees another number than under DataParallel. And a term of the loss that reaches the
parameters past the wrapped model is summed in another order, so that the last bit differs in float32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.aliases import callee
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import Call, Script, Variable, literal
from dp2ddp.codemod.facts.turns import Region, is_inside, without_gradient
from dp2ddp.codemod.facts.uses import QUIET_METHODS, Stopper

AUTOGRAD = ("torch.autograd.grad", "torch.autograd.backward", "torch.func.", "torch.autograd.functional.")
CHECKPOINTS = ("torch.utils.checkpoint.",)
HOOKS = {"register_hook", "register_post_accumulate_grad_hook", "register_multi_grad_hook"}
NOT_IN_GRAPH = {  # what may be asked of a parameter without making it part of the loss
    *("data", "grad", "shape", "size", "numel", "nelement", "dim", "ndim", "requires_grad", "device"),
    *("dtype", "is_cuda", "detach", "copy_", "zero_"),
}
LISTS = (ast.comprehension, ast.ListComp, ast.List, ast.BinOp, ast.Starred)
AROUND = ("builtins.zip", "builtins.enumerate", "builtins.list", "builtins.filter", "builtins.sorted")


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


def _about_call(script: Script, places: Places, call: Call) -> Iterator[Stopper]:
    name = call.name or ""
    if name.startswith(AUTOGRAD) or name.startswith(CHECKPOINTS) and not _is_plain_checkpoint(places, call):
        yield Stopper(f"{name}() makes gradients that DDP's reducer does not see", call.node)
    if call.method == "backward" and (call.node.args or call.node.keywords):
        yield Stopper("backward() has arguments (retain_graph, create_graph or a gradient)", call.node)
    if (
        call.method == "backward"
        and places.of(call.node) is not Place.MAIN
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


def _is_plain_checkpoint(places: Places, call: Call) -> bool:
    """Inside a forward and not reentrant: its backward is part of the one (SEMANTICS 60)."""
    reentrant = call.keyword("use_reentrant")
    return (
        reentrant is not None and literal(reentrant.value) is False and places.of(call.node) is Place.FORWARD
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


# --- terms of the loss that reach the parameters past the wrapped model


def penalties(
    script: Script, wraps: tuple[Wrap, ...], region: Region, backward: ast.Call
) -> Iterator[Stopper]:
    """Parameters that may be part of the loss without a forward of the wrapped model."""
    lists = [*_parameter_lists(script)]
    for node in (*lists, *_by_name(script, lists)):
        if not _may_be_in_loss(script, region, backward, node) or _is_harmless(script, node):
            continue
        yield Stopper("parameters may be part of the loss beside the forward (a penalty?)", node)
    yield from _raw_models(script, wraps, region, backward)


def _parameter_lists(script: Script) -> Iterator[ast.expr]:
    for call in script.calls:
        if call.method in ("parameters", "named_parameters"):
            yield call.node
    for node in script.nodes(ast.Subscript):
        if isinstance(node, ast.Subscript) and literal(node.slice) == "params":
            yield node


def _by_name(script: Script, lists: list[ast.expr]) -> Iterator[ast.expr]:
    """Where a list of parameters is read by a name: `params = list(net.parameters())`, used in the loop."""
    names: set[Variable] = set()
    for node in lists:
        parent = script.scopes.parents[node]
        while isinstance(parent, LISTS) or (
            isinstance(parent, ast.Call) and script.scopes.name(parent.func) in AROUND
        ):
            parent = script.scopes.parents[parent]
        if isinstance(parent, ast.Assign):
            names |= {script.variable(target) for target in parent.targets}
    for one in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(one, (ast.Name, ast.Attribute))
        if isinstance(one.ctx, ast.Load) and names and script.variable(one) in names:
            yield one


def _may_be_in_loss(script: Script, region: Region, backward: ast.Call, node: ast.expr) -> bool:
    if not region.holds(node) or without_gradient(script, node):
        return False
    behind = script.positions.span(node).start > script.positions.span(backward).end
    return not (is_inside(script, node, region.turn) and behind)


def _is_harmless(script: Script, node: ast.expr) -> bool:
    """An argument of an optimizer or of clip_grad, or a loop that asks for nothing that has a graph."""
    parent = script.scopes.parents[node]
    while isinstance(parent, ast.Call) and script.scopes.name(parent.func) in AROUND:
        node, parent = parent, script.scopes.parents[parent]
    match parent:
        case ast.Call(func=func):
            return (script.scopes.name(func) or "").startswith(("torch.optim.", "torch.nn.utils.clip_grad"))
        case ast.For(target=target, iter=over) if over is node:
            return all(_asks_nothing(script, target, one) for one in parent.body)
        case ast.comprehension(target=target):
            return _asks_nothing(script, target, script.scopes.parents[parent])
        case ast.Attribute(attr="__class__") | ast.Expr():
            return True
    return False


def _asks_nothing(script: Script, target: ast.expr, body: ast.AST) -> bool:
    """Whether code uses a loop's names for data and gradients alone."""
    names = {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
    for one in ast.walk(body):
        if isinstance(one, ast.Name) and one.id in names and isinstance(one.ctx, ast.Load):
            parent = script.scopes.parents[one]
            text = isinstance(parent, (ast.Compare, ast.FormattedValue)) or script.scopes.name(
                getattr(parent, "func", None)
            ) in ("builtins.print", "builtins.len")
            if not text and not (isinstance(parent, ast.Attribute) and parent.attr in NOT_IN_GRAPH):
                return False
    return True


def _raw_models(
    script: Script, wraps: tuple[Wrap, ...], region: Region, backward: ast.Call
) -> Iterator[Stopper]:
    """`raw` of `net = DataParallel(raw)`, run or looked into beside the wrapper."""
    names = {script.variable(raw) for wrap in wraps if (raw := _raw_name(script, wrap))}
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if script.variable(node) not in names or not isinstance(node.ctx, ast.Load):
            continue
        parent = script.scopes.parents[node]
        quiet = isinstance(parent, ast.Attribute) and parent.attr in QUIET_METHODS
        if not quiet and _may_be_in_loss(script, region, backward, node):
            yield Stopper(f"`{script.told(node)}` is used beside the wrapper", node)


def _raw_name(script: Script, wrap: Wrap) -> ast.expr | None:
    """The name of the model that is wrapped, if the wrapper has another: `model` of `DataParallel(model.cuda())`."""
    node: ast.AST | None = wrap.module
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    return None if script.told(node) in wrap.names else node
