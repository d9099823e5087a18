"""Whether only models are wrapped that nobody trains: a teacher, a fixed extractor of features."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set

from dp2ddp.codemod.facts.aliases import find_forwards, wrapped_names
from dp2ddp.codemod.facts.iterations import without_gradient
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import CallSite, Script, Variable, literal


def wraps_frozen_models_only(program: Script, wraps: Sequence[Wrap]) -> bool:
    """Another model is trained, no optimizer is given a wrapped one, and each runs without gradients, or is frozen."""
    optimizers = list(_optimizers(program))
    if not wraps or not optimizers:
        return False
    names = wrapped_names(program, wraps)
    if any(program.variable(node) in names for call in optimizers for node in _mentioned(program, call)):
        return False
    return all(_is_frozen(program, wrapped_names(program, [wrap])) for wrap in wraps)


def _optimizers(program: Script) -> Iterator[CallSite]:
    for call in program.calls:
        name = call.name or ""
        if name.startswith("torch.optim.") and not name.startswith(
            ("torch.optim.lr_scheduler.", "torch.optim.swa_")
        ):
            yield call


def _mentioned(program: Script, call: CallSite) -> Iterator[ast.AST]:
    """The names in what an optimizer is given, and in what these were given."""
    for given in (*call.node.args, *(keyword.value for keyword in call.node.keywords)):
        for node in ast.walk(given):
            if isinstance(node, (ast.Name, ast.Attribute)):
                yield node
                value = program.scopes.value(node)
                yield from (
                    inner for inner in ast.walk(value or node) if isinstance(inner, (ast.Name, ast.Attribute))
                )


def _is_frozen(program: Script, names: Set[Variable]) -> bool:
    forwards = list(find_forwards(program, names))
    if forwards and all(without_gradient(program, call) for call in forwards):
        return True
    return any(_freezes(program, node, names) for node in program.nodes(ast.Call, ast.For))


def _freezes(program: Script, node: ast.AST, names: Set[Variable]) -> bool:
    """`net.requires_grad_(False)`, `for p in net.parameters(): p.requires_grad = False`."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="requires_grad_"), args=[given]):
            return literal(given) is False and program.variable(owner) in names
        case ast.For(iter=ast.Call(func=ast.Attribute(value=owner, attr="parameters")), body=body):
            return program.variable(owner) in names and any(map(_switches_off, body))
    return False


def _switches_off(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=ast.Constant(value=False)):
            return True
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr="requires_grad_"), args=[ast.Constant(value=False)])
        ):
            return True
    return False
