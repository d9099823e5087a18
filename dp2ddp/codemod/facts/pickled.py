"""Models that are saved and loaded as a whole: the object, not its state."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import Call, Script, literal


def saved_wrapper(
    script: Script, saved: ast.expr | None, wraps: Iterable[Wrap]
) -> tuple[ast.expr, Wrap] | None:
    """The wrapped model in what is saved, and where it was wrapped."""
    pairs = ((part, wrap) for part in _parts(script, saved) for wrap in wraps)
    return next(((part, wrap) for part, wrap in pairs if _is_wrapped(script, part, wrap)), None)


def may_hold_wrapper(script: Script, load: Call, wraps: Iterable[Wrap]) -> bool:
    """Whether a `torch.load(...)` may bring a whole DataParallel: it is allowed to, or takes the model's name."""
    allowed = load.keyword("weights_only")
    if allowed is not None:
        return literal(allowed.value) is False
    parent = script.scopes.parents[load.node]
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return any(script.told(target) in wrap.names for target in targets for wrap in wraps)


def _parts(script: Script, saved: ast.expr | None) -> Iterator[ast.expr]:
    """What is saved, or the values of the dict that is, also by its name."""
    held = script.scopes.value(saved)
    saved = held if isinstance(held, (ast.Dict, ast.List, ast.Tuple)) else saved
    if isinstance(saved, ast.Dict):
        yield from saved.values
    elif isinstance(saved, ast.Call):
        yield from (keyword.value for keyword in saved.keywords)
    elif isinstance(saved, (ast.List, ast.Tuple)):
        yield from saved.elts
    elif saved is not None:
        yield saved


def _is_wrapped(script: Script, node: ast.expr, wrap: Wrap) -> bool:
    """Whether this is the name that the wrap was given: a parameter of the same name is another thing."""
    scopes = script.scopes
    if script.told(node) not in wrap.names or _is_taken_out(script, node):
        return False
    if not isinstance(node, ast.Name) or wrap.call.node not in scopes.scope_of:
        return True
    here, there = (scopes.lookup(node.id, scopes.scope_of[one]) for one in (node, wrap.call.node))
    return here is there


def _is_taken_out(script: Script, node: ast.expr) -> bool:
    """`net = net.module` somewhere: then the name means both."""
    inner = f"{script.told(node)}.module"
    return any(
        isinstance(one, ast.Assign) and script.told(one.value) == inner for one in script.nodes(ast.Assign)
    )
