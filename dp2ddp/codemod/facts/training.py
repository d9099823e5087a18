"""How the script trains: forwards of the wrapped model, backwards, steps; enough to prove when DDP's reducer is right.

The reducer sums gradients once per backward of one forward (SEMANTICS 40 to 61). `Training.reducer_stopper` names
the first thing that does not fit, or cannot be followed; None means that everything was followed and fits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.aliases import callee, find_forwards, wrapped_names
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import Call, Script, literal

AUTOGRAD = ("torch.autograd.grad", "torch.autograd.backward", "torch.func.grad", "torch.autograd.functional.")
CHECKPOINTS = ("torch.utils.checkpoint.",)
QUIET_METHODS = {  # methods of the wrapped model that run no forward and touch no gradient graph
    *(
        "parameters",
        "named_parameters",
        "buffers",
        "named_buffers",
        "modules",
        "children",
        "named_modules",
        "named_children",
    ),
    *(
        "train",
        "eval",
        "state_dict",
        "load_state_dict",
        "zero_grad",
        "cuda",
        "to",
        "cpu",
        "float",
        "double",
        "training",
    ),
}
QUIET_FUNCTIONS = {
    *("print", "isinstance", "hasattr", "len", "str", "repr", "type", "id", "format"),
}
QUIET_NAMES = (
    "torch.save",
    "torch.optim.",
    "builtins.",
    "copy.deepcopy",
    "torch.nn.utils.clip_grad",
    "logging.",
)
NO_GRAD = (
    "torch.no_grad",
    "torch.inference_mode",
    "torch.autograd.no_grad",
    "torch.autograd.grad_mode.no_grad",
)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, eq=False)
class Stopper:
    """Why the reducer is not proven: what, and where."""

    why: str
    line: int


@dataclass(frozen=True, eq=False)
class Training:
    """What is known about the training loop."""

    names: frozenset[str]  # every text under which a wrapped model is used
    forwards: tuple[ast.Call, ...]  # calls of wrapped models
    backwards: tuple[ast.Call, ...]
    use_stopper: Stopper | None  # the first use of a wrapped model that is not followed
    reducer_stopper: Stopper | None
    gradient_stopper: Stopper | None  # what this file does to gradients, whoever's model it is


def find_training(script: Script, wraps: tuple[Wrap, ...], places: Places, reach: Reach) -> Training:
    names = wrapped_names(script, wraps)
    forwards = tuple(find_forwards(script, names))
    backwards = tuple(
        call.node for call in script.calls if call.method == "backward" and _is_main(places, call)
    )
    use = next(_about_uses(script, names), None)
    stopper = next(_stoppers(script, reach, wraps, names, forwards, backwards), None)
    return Training(names, forwards, backwards, use, stopper, next(_about_gradients(script, reach), None))


def _about_gradients(script: Script, reach: Reach) -> Iterator[Stopper]:
    """In a local module: what makes or changes gradients, for a model that is wrapped in another file."""
    for call in script.calls:
        if call.method == "backward" and reach.holds(script, call.node):
            yield Stopper("backward() is called", call.node.lineno)
    yield from _about_autograd(script, reach)


def _is_main(places: Places, call: Call) -> bool:
    return places.of(call.node) is Place.MAIN


def _stoppers(
    script: Script,
    reach: Reach,
    wraps: tuple[Wrap, ...],
    names: frozenset[str],
    forwards: tuple[ast.Call, ...],
    backwards: tuple[ast.Call, ...],
) -> Iterator[Stopper]:
    yield from _about_wraps(wraps)
    yield from _about_autograd(script, reach)
    yield from _about_uses(script, names)
    yield from _about_loop(script, forwards, backwards)


def _about_wraps(wraps: tuple[Wrap, ...]) -> Iterator[Stopper]:
    targets = {name for wrap in wraps for name in wrap.names}
    for wrap in wraps:
        if not wrap.names:
            yield Stopper("the wrapped model is not given a name", wrap.call.node.lineno)
        if len(targets) > 1:
            yield Stopper("more than one model is wrapped, or one under several names", wrap.call.node.lineno)
        if any("." in name and not name.startswith("self.") or "[" in name for name in wrap.names):
            yield Stopper(
                "a part of a model is wrapped, and its forward cannot be seen", wrap.call.node.lineno
            )


def _about_autograd(script: Script, reach: Reach) -> Iterator[Stopper]:
    for call in script.calls:
        if not reach.holds(script, call.node):
            continue
        name = call.name or ""
        if name.startswith(AUTOGRAD) or name.startswith(CHECKPOINTS):
            yield Stopper(f"{name}() makes gradients that DDP's reducer does not see", call.node.lineno)
        if call.method == "backward" and (call.node.args or call.node.keywords):
            yield Stopper(
                "backward() has arguments (retain_graph, create_graph or a gradient)", call.node.lineno
            )
        if call.method == "requires_grad_" or _sets_requires_grad_by_name(call):
            yield Stopper("parameters are frozen or unfrozen", call.node.lineno)
    for node in script.nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store) and reach.holds(script, node):
            yield Stopper("parameters are frozen or unfrozen", node.lineno)


def _sets_requires_grad_by_name(call: Call) -> bool:
    return call.name == "builtins.setattr" and literal(call.argument(1)) == "requires_grad"


def _about_uses(script: Script, names: frozenset[str]) -> Iterator[Stopper]:
    """Every mention of the wrapped model must be one whose meaning is known."""
    for node in script.nodes(ast.Name, ast.Attribute, ast.Subscript):
        assert isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
        if (
            isinstance(node.ctx, ast.Load)
            and script.told(node) in names
            and not _is_known_use(script, node, names)
        ):
            around = script.scopes.parents[node]
            if isinstance(around, ast.Attribute) and around.attr == "module":
                around = script.scopes.parents[around]
            text = script.told(around)
            yield Stopper(
                f"`{_short(text)}` uses the wrapped model in a way that is not followed", node.lineno
            )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 50 else line[:47] + "..."


def _is_known_use(script: Script, node: ast.expr, names: frozenset[str]) -> bool:
    parent = script.scopes.parents[node]
    match parent:
        case ast.Call(func=func) if func is node:
            return True
        case ast.Call():
            return _is_known_receiver(script, parent, names)
        case ast.keyword():
            call = script.scopes.parents[parent]
            return isinstance(call, ast.Call) and _is_known_receiver(script, call, names)
        case ast.Attribute(attr="module"):
            return _is_known_inner(script, parent)
        case ast.IfExp():
            return parent.test is node or _is_known_inner(script, node)
        case ast.Attribute(attr=attr):
            return attr in QUIET_METHODS or attr == "forward"
        case ast.Assign(value=value) | ast.Return(value=value):
            return value is node and not isinstance(value, ast.Tuple)
        case ast.Compare() | ast.UnaryOp() | ast.If() | ast.Expr() | ast.FormattedValue():
            return True
    return False


def _is_known_receiver(script: Script, call: ast.Call, names: frozenset[str]) -> bool:
    name = script.scopes.name(call.func) or ""
    return bool(callee(script, call)) or name.startswith(QUIET_NAMES) or name == "torch.nn.DataParallel"


def _is_known_inner(script: Script, inner: ast.expr) -> bool:
    """`model.module` is harmless where only parameters or states are asked for, also by a name of its own."""
    parent = script.scopes.parents[inner]
    if isinstance(parent, ast.IfExp) and parent.test is not inner:
        return _is_known_inner(script, parent)  # `model.module if hasattr(model, "module") else model`
    if isinstance(parent, ast.Attribute):
        return parent.attr in QUIET_METHODS
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        return _is_quiet_name(script, parent.targets[0])
    return False


def _is_quiet_name(script: Script, name: ast.Name) -> bool:
    """Whether a name is used for parameters and states alone, wherever the same name may mean the same."""
    scope = script.scopes.scope_of[name]
    for node in script.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        if node.id != name.id or not isinstance(node.ctx, ast.Load):
            continue
        if script.scopes.lookup(node.id, script.scopes.scope_of[node]) is scope:
            parent = script.scopes.parents[node]
            if not isinstance(parent, ast.Attribute) or parent.attr not in QUIET_METHODS:
                return False
    return True


def _about_loop(
    script: Script, forwards: tuple[ast.Call, ...], backwards: tuple[ast.Call, ...]
) -> Iterator[Stopper]:
    """One forward, one backward, one zero_grad and one step in one turn of one loop."""
    if len(backwards) != 1:
        line = backwards[1].lineno if backwards else 1
        yield Stopper(
            "there is no backward() in this file" if not backwards else "there are several backward()s", line
        )
        return
    backward = backwards[0]
    turn = _turn(script, backward)
    mine = [
        forward
        for forward in forwards
        if not _without_gradient(script, forward) and _inside(script, forward, turn)
    ]
    if (
        not mine
        or not _exclude_each_other(script, mine)
        or any(_turn(script, one) is not turn for one in mine)
    ):
        found = (
            "no forward" if not mine else f"{len(mine)} forwards" if len(mine) > 1 else "a loop of forwards"
        )
        yield Stopper(f"{found} of the wrapped model for one backward()", backward.lineno)
    if _conditions(script, backward, turn):
        yield Stopper("backward() runs under a condition", backward.lineno)
    for method in ("zero_grad", "step"):
        yield from _about_every_turn(script, turn, method, backward)


def _exclude_each_other(script: Script, nodes: list[ast.Call]) -> bool:
    """Whether at most one of the nodes runs: they stand in different branches of one `if`."""
    return all(
        _in_other_branches(script, one, two) for index, one in enumerate(nodes) for two in nodes[:index]
    )


def _in_other_branches(script: Script, one: ast.AST, two: ast.AST) -> bool:
    path_of_one = [one, *script.scopes.ancestors(one)]
    path_of_two = [two, *script.scopes.ancestors(two)]
    common = next(node for node in path_of_one if node in path_of_two)
    if not isinstance(common, ast.If):
        return False
    below = (path_of_one[path_of_one.index(common) - 1], path_of_two[path_of_two.index(common) - 1])
    return (below[0] in common.body) != (below[1] in common.body) and common.test not in below


def _turn(script: Script, node: ast.AST) -> ast.AST:
    """The innermost loop or function around a node: what is done once, or once a turn."""
    kinds = (*LOOPS, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
    return next(parent for parent in script.scopes.ancestors(node) if isinstance(parent, kinds))


def _inside(script: Script, node: ast.AST, outer: ast.AST) -> bool:
    return any(parent is outer for parent in script.scopes.ancestors(node))


def _conditions(script: Script, node: ast.AST, turn: ast.AST) -> bool:
    """Whether a node runs only under a condition, within one turn."""
    for parent in script.scopes.ancestors(node):
        if parent is turn:
            return False
        if isinstance(parent, (ast.If, ast.Try, ast.IfExp, ast.BoolOp, ast.Match)):
            return True
    return False


def _about_every_turn(script: Script, turn: ast.AST, method: str, backward: ast.Call) -> Iterator[Stopper]:
    calls = [call.node for call in script.calls if call.method == method and _turn(script, call.node) is turn]
    if not calls:
        yield Stopper(f"{method}() is not called in the same turn as backward()", backward.lineno)
    for call in calls:
        if _conditions(script, call, turn):
            yield Stopper(f"{method}() runs under a condition (accumulation?)", call.lineno)
        if method == "step" and call.args and script.scopes.definition(call.args[0]) is not None:
            yield Stopper("step() is given a closure", call.lineno)


def _without_gradient(script: Script, node: ast.AST) -> bool:
    """Under torch.no_grad(), as a context or as a decorator."""
    for parent in script.scopes.ancestors(node):
        contexts: list[ast.expr] = []
        if isinstance(parent, ast.With):
            contexts = [item.context_expr for item in parent.items]
        elif isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            contexts = parent.decorator_list
        if any(_is_no_grad(script, one) for one in contexts):
            return True
    return False


def _is_no_grad(script: Script, node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return script.scopes.name(called) in NO_GRAD
