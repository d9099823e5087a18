"""What the local modules that a script imports do, where a conversion of the script alone would not be enough."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.clocks import shared_clocks
from dp2ddp.codemod.facts.devices import find_device_indices
from dp2ddp.codemod.facts.effects import find_effects
from dp2ddp.codemod.facts.models import calls_by_hand, distributed_already, find_wraps, subclasses
from dp2ddp.codemod.facts.places import Places
from dp2ddp.codemod.facts.randomness import host_draws_in_forward, reseeds_from_outside, unseeded_generators
from dp2ddp.codemod.facts.script import Script
from dp2ddp.errors import SourceError
from dp2ddp.source.projects import LocalModule

PARALLEL = ("DataParallel", "DataParallel works", "several devices")
WRAPS = "wraps a model in DataParallel"
DYNAMIC = {"getattr", "globals", "eval", "exec", "__dict__", "import_module", "__import__"}


@dataclass(frozen=True, eq=False)
class Found:
    """One line of a local module that stands in the way."""

    file: str
    node: ast.AST
    what: str
    wraps: bool = False  # it is DataParallel itself


def find_elsewhere(script: Script, modules: Iterable[LocalModule]) -> tuple[Found, ...]:
    """In the order of the modules and their lines."""
    parsed = list(_parsed(modules))
    mentioned = _mentioned([script, *parsed])
    found = [one for module in parsed for one in _in_module(module, mentioned)]
    return tuple(found)


def _parsed(modules: Iterable[LocalModule]) -> Iterator[Script]:
    for module in modules:
        try:
            yield Script(module.source)
        except SourceError:
            continue  # Python itself will say so when the script runs


def _mentioned(scripts: list[Script]) -> set[str] | None:
    """The names that code which can be reached mentions; None if names are looked up at run time."""
    names = set(_identifiers(scripts[0].tree))
    pending = [node for script in scripts[1:] for node in script.tree.body]
    while True:
        reached = [node for node in pending if _name(node) is None or _name(node) in names]
        if not reached:
            break
        pending = [node for node in pending if node not in reached]
        names |= {name for node in reached for name in _identifiers(node)}
    return None if names & DYNAMIC else names


def _name(node: ast.stmt) -> str | None:
    """The name of a definition; None for a statement that runs when the module is imported."""
    return getattr(node, "name", None)


def _identifiers(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr
        elif isinstance(one, ast.alias):
            yield one.name.rpartition(".")[2]


def _in_module(module: Script, mentioned: set[str] | None) -> Iterator[Found]:
    for node, what in _findings(module):
        top = _top_statement(module, node)
        name = _name(top)
        if (name is None or mentioned is None or name in mentioned) and not _is_main_guard(module, top):
            yield Found(_shown(module), node, what, what.endswith(PARALLEL))


def _findings(module: Script) -> Iterator[tuple[ast.AST, str]]:
    yield from ((wrap.call.node, WRAPS) for wrap in find_wraps(module) if not wrap.is_single)
    yield from ((node, f"class {node.name} changes how DataParallel works") for node in subclasses(module))
    yield from ((call.node, f"{_told(call.node)}() drives several devices") for call in calls_by_hand(module))
    yield from (
        (use.node, f"names a device by its index ({use.told})") for use in find_device_indices(module)
    )
    yield from (
        (effect.call.node, f"{_told(effect.call.node)}() acts on files or programs")
        for effect in find_effects(module)
    )
    yield from (
        (call.node, f"{_told(call.node)}() differs from rank to rank") for call in shared_clocks(module)
    )
    yield from (
        (call.node, f"{_told(call.node)}() differs from rank to rank") for call in unseeded_generators(module)
    )
    yield from (
        (call.node, f"{_told(call.node)}() seeds every rank differently")
        for call in reseeds_from_outside(module)
    )
    draws = host_draws_in_forward(module, Places(module))
    yield from ((call.node, f"{_told(call.node)}() is drawn inside a forward") for call in draws)
    distributed = distributed_already(module)
    if distributed is not None:
        yield distributed, "can run as several processes already"


def _told(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _top_statement(module: Script, node: ast.AST) -> ast.stmt:
    last = node
    for parent in module.scopes.ancestors(node):
        if isinstance(parent, ast.Module):
            break
        last = parent
    assert isinstance(last, ast.stmt)
    return last


def _is_main_guard(module: Script, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _shown(module: Script) -> str:
    """The path of a module as the user would type it."""
    path = module.source.path
    return module.source.name if path is None else os.path.relpath(path)
