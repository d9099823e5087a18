"""Terms of the loss that reach the parameters past the wrapped model: penalties, parts that have a name of their own.

Their gradient is summed with the forward's in another order than under DataParallel, so that DDP's reducer gives
another last bit in float32; a graph that holds the sum itself does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from dp2ddp.codemod.facts.aliases import assignments
from dp2ddp.codemod.facts.iterations import Region, is_inside, runs_without_gradient
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.mutating import FILLING_METHODS
from dp2ddp.codemod.facts.places import Places
from dp2ddp.codemod.facts.script import Script, Variable, literal
from dp2ddp.codemod.facts.uses import Stopper
from dp2ddp.codemod.facts.without_graph import GRAPHLESS, WithoutGraph

LISTINGS = {  # methods of a module that give its parameters, or the parts that have them
    *("parameters", "named_parameters", "modules", "named_modules", "children", "named_children"),
}
QUIET_OF_HOLDER = {"step", "param_groups", "update", "update_parameters"}
LISTS = (ast.comprehension, ast.ListComp, ast.List, ast.BinOp, ast.Starred)
AROUND = ("builtins.zip", "builtins.enumerate", "builtins.list", "builtins.filter", "builtins.sorted")
OPTIMIZER = "torch.optim."


def penalties(
    script: Script, places: Places, wraps: tuple[Wrap, ...], region: Region, backward: ast.Call
) -> Iterator[Stopper]:
    """Parameters that may be part of the loss without a forward of the wrapped model."""
    lists = [*_parameter_lists(script)]
    named = _reads(script, _names_of_lists(script, lists))
    quiet = WithoutGraph(script)
    for node in (*lists, *named):
        if _may_be_in_loss(script, region, backward, node) and not quiet.holds(node):
            yield Stopper("parameters may be part of the loss beside the forward (a penalty?)", node)
    for node in _reads(script, _holders(script, lists)):
        if (
            _may_be_in_loss(script, region, backward, node)
            and not _is_set_to_work(script, node)
            and not quiet.holds(node)
        ):
            yield Stopper("what holds parameters may be part of the loss beside the forward", node)
    for node in _reads(script, {*raw_models(script, wraps), *_parts(script, places, wraps)}):
        if _may_be_in_loss(script, region, backward, node) and not quiet.holds(node):
            yield Stopper(f"`{script.text_of(node)}` is used beside the wrapper", node)


def _reads(script: Script, names: set[Variable]) -> Iterator[ast.expr]:
    """Where one of the variables is read."""
    for node in script.nodes(ast.Name, ast.Attribute) if names else ():
        assert isinstance(node, (ast.Name, ast.Attribute))
        if isinstance(node.ctx, ast.Load) and script.variable(node) in names:
            yield node


def _parameter_lists(script: Script) -> Iterator[ast.expr]:
    for call in script.calls:
        if call.method in LISTINGS:
            yield call.node
    for node in script.nodes(ast.Subscript):
        if isinstance(node, ast.Subscript) and literal(node.slice) == "params":
            yield node


def _names_of_lists(script: Script, lists: list[ast.expr]) -> set[Variable]:
    """`params = list(net.parameters())`."""
    names: set[Variable] = set()
    for node in lists:
        parent = script.scopes.parents[node]
        while isinstance(parent, LISTS) or (
            isinstance(parent, ast.Call) and script.scopes.name(parent.func) in AROUND
        ):
            parent = script.scopes.parents[parent]
        if isinstance(parent, ast.Assign):
            names |= {script.variable(target) for target in parent.targets}
    return names


def _holders(script: Script, lists: list[ast.expr]) -> set[Variable]:
    """What is made of parameters: `decay = Decay(net.parameters())`, `weights = {name: p for name, p in ...}`."""
    names: set[Variable] = set()
    for node in lists:
        for parent in script.scopes.ancestors(node):
            if isinstance(parent, ast.stmt):
                names |= set(_filled_with(script, parent, node))
                break
            if isinstance(parent, ast.Call) and not _may_hold(script, parent):
                break
    return names


def _may_hold(script: Script, call: ast.Call) -> bool:
    """Whether the result of a call may hold what the call is given: an object of the script's own, no optimizer."""
    definition = script.scopes.definition(call.func)
    if not isinstance(definition, ast.ClassDef):
        return (script.scopes.name(call.func) or "") in (*AROUND, "builtins.dict", "builtins.tuple")
    return not any((script.scopes.name(base) or "").startswith(OPTIMIZER) for base in definition.bases)


def _filled_with(script: Script, statement: ast.stmt, listed: ast.expr) -> Iterator[Variable]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield script.variable(target)
    elif isinstance(statement, ast.For) and statement.iter is listed:
        names = {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
        for call in ast.walk(statement):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr in FILLING_METHODS
                and any(isinstance(argument, ast.Name) and argument.id in names for argument in call.args)
            ):
                yield script.variable(call.func.value)


def _is_set_to_work(script: Script, holder: ast.expr) -> bool:
    """`optimizer.step()`, `average.update()`."""
    parent = script.scopes.parents[holder]
    return isinstance(parent, ast.Attribute) and parent.attr in QUIET_OF_HOLDER


def _may_be_in_loss(script: Script, region: Region, backward: ast.Call, node: ast.expr) -> bool:
    if not region.holds(node) or runs_without_gradient(script, node):
        return False
    behind = script.positions.span(node).start > script.positions.span(backward).end
    return not (is_inside(script, node, region.turn) and behind)


# --- the wrapped model by another name


def raw_models(script: Script, wraps: tuple[Wrap, ...]) -> Iterator[Variable]:
    """`raw` of `net = DataParallel(raw)`."""
    return (script.variable(raw) for wrap in wraps if (raw := _raw_name(script, wrap)))


def _raw_name(script: Script, wrap: Wrap) -> ast.expr | None:
    """The name of the model that is wrapped, if the wrapper has another: `model` of `DataParallel(model.cuda())`."""
    node = _without_methods(script, wrap.module)
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    return None if script.text_of(node) in wrap.names else node


def _without_methods(script: Script, node: ast.AST | None) -> ast.AST | None:
    """`model` of `model.cuda().train()`."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and script.scopes.name(node.func) is None
    ):
        node = node.func.value
    return node


def _parts(script: Script, places: Places, wraps: tuple[Wrap, ...]) -> Iterator[Variable]:
    """Parts that have a name: `encoder` of `DataParallel(Model(encoder))`, `head` of `head = model.head`."""
    whole = {script.variable(target) for wrap in wraps for target in wrap.targets}
    for wrap in wraps:
        raw = _without_methods(script, wrap.module)
        if isinstance(raw, (ast.Name, ast.Attribute)):
            whole.add(script.variable(raw))
        made = _without_methods(script, script.scopes.value(raw)) if raw is not None else None
        if isinstance(made, ast.Call):
            given = (*made.args, *(keyword.value for keyword in made.keywords))
            yield from (
                script.variable(argument) for argument in given if _is_module(script, places, argument)
            )
    for node in script.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        for target, value in assignments(script, node):
            if isinstance(value, ast.Attribute) and _root(script, value, whole):
                yield script.variable(target)


def _is_module(script: Script, places: Places, node: ast.expr) -> bool:
    """A name whose value is made by a class of modules."""
    made = (
        _without_methods(script, script.scopes.value(node))
        if isinstance(node, (ast.Name, ast.Attribute))
        else None
    )
    if not isinstance(made, ast.Call):
        return False
    definition = script.scopes.definition(made.func)
    if isinstance(definition, ast.ClassDef):
        return places.kind(definition) == "module"
    return (script.scopes.name(made.func) or "").startswith(("torch.nn.", "torchvision.models."))


def _root(script: Script, node: ast.Attribute, whole: Set[Variable]) -> bool:
    """Whether an attribute is a part of one of these models, and no number or text that it keeps."""
    if node.attr in GRAPHLESS or node.attr in LISTINGS or node.attr == "module":
        return False
    inner: ast.expr = node.value
    while isinstance(inner, ast.Attribute) and script.variable(inner) not in whole:
        inner = inner.value
    return isinstance(inner, (ast.Name, ast.Attribute)) and script.variable(inner) in whole
