"""Generators of random numbers that loading and the main flow both draw from: then no rank may load for the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.facts.draws import GENERATORS
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.script import Script

MAKERS = {*GENERATORS, "random.SystemRandom", "torch.Generator"}
SEEDING = {"manual_seed", "seed", "get_state", "set_state", "setstate", "getstate", "initial_seed"}


def shared_generators(
    script: Script, places: Places, scripts: Sequence[Script]
) -> Iterator[tuple[ast.AST, str]]:
    """Where a generator is made that is drawn from in loading and beside it, and its name."""
    for call in script.calls:
        name = _held_by(script, call.node) if call.name in MAKERS else None
        if name is None:
            continue
        mentions = [
            (file, node) for file in scripts for node in file.by_word.get(name, ()) if _is_use(file, node)
        ]
        loads = [_may_load(file, places, node) for file, node in mentions]
        stays = [_may_stay(file, places, node) for file, node in mentions]
        pairs = ((a, b) for a in range(len(mentions)) for b in range(len(mentions)) if a != b)
        if any(loads[a] and stays[b] for a, b in pairs):
            yield call.node, name


def _held_by(script: Script, made: ast.Call) -> str | None:
    """`rng` of `rng = default_rng(0)`, of `self.rng = ...`, of `g = torch.Generator().manual_seed(0)`."""
    made = _with_methods(script, made)
    if (given := _given_to(script, made)) and _only_draws(script, given):
        return None  # torch.randn(9, generator=torch.Generator())
    statement = script.scopes.statement(made)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = (getattr(target, "id", None) or getattr(target, "attr", None) for target in targets)
    return next((name for name in names if isinstance(name, str)), None)


def _with_methods(script: Script, made: ast.Call) -> ast.Call:
    """`torch.Generator().manual_seed(0)` of `torch.Generator()`."""
    method = script.scopes.parents[made]
    called = script.scopes.parents[method] if isinstance(method, ast.Attribute) else None
    return _with_methods(script, called) if isinstance(called, ast.Call) else made


def _only_draws(script: Script, call: ast.Call) -> bool:
    """A function of torch or numpy that draws, and keeps no generator: `torch.randn`."""
    name = script.scopes.name(call.func) or ""
    return name.startswith(("torch.", "numpy.")) and not name.startswith("torch.utils.data.")


def _is_use(script: Script, node: ast.Name | ast.Attribute) -> bool:
    """Not where it is made or seeded."""
    method = script.scopes.parents[node]
    seeds = isinstance(method, ast.Attribute) and method.attr in SEEDING
    return isinstance(node.ctx, ast.Load) and not seeds


def _may_load(script: Script, places: Places, node: ast.AST) -> bool:
    """In a data set, or given to something that may be one, or that loads."""
    given = _given_to(script, node)
    is_handed_on = given is not None and not _only_draws(script, given)
    return is_handed_on or places.of(node) is ExecutionPlace.WORKER


def _may_stay(script: Script, places: Places, node: ast.AST) -> bool:
    """In the main flow or a forward, and not given to a loader alone."""
    if places.of(node) is ExecutionPlace.WORKER:
        return False
    given = _given_to(script, node)
    return given is None or not (script.scopes.name(given.func) or "").startswith("torch.utils.data.")


def _given_to(script: Script, node: ast.AST) -> ast.Call | None:
    parent = script.scopes.parents[node]
    if isinstance(parent, ast.keyword):
        parent = script.scopes.parents[parent]
    return parent if isinstance(parent, ast.Call) and parent.func is not node else None
