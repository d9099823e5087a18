"""The command that starts the converted script: one process a device."""

from __future__ import annotations

import ast
import shlex

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.script import literal


def world_of(facts: Facts) -> int | None:
    """How many devices the script names, by device_ids or CUDA_VISIBLE_DEVICES; None if it takes what is there."""
    if facts.count:
        return facts.count
    visible = literal(facts.entry.visible_devices)
    return len([one for one in visible.split(",") if one.strip()]) if isinstance(visible, str) else None


def launch_line(facts: Facts, script: str | None = None) -> str:
    """The torchrun line; `gpu` lets torchrun count the GPUs."""
    world = world_of(facts)
    seed = "PYTHONHASHSEED=0 " if iterates_over_sets(facts) else ""
    name = script or converted_name(facts)
    return f"{seed}torchrun --standalone --nproc-per-node {world or 'gpu'} {shlex.quote(name)}"


def entry_name(facts: Facts) -> str:
    """The script's own name, which it keeps in a converted project."""
    path = facts.script.source.path
    return "train.py" if path is None else path.name


def converted_name(facts: Facts) -> str:
    path = facts.script.source.path
    return "train_ddp.py" if path is None else f"{path.stem}_ddp{path.suffix}"


def iterates_over_sets(facts: Facts) -> bool:
    """Whether an order depends on string hashes, which differ from process to process unless PYTHONHASHSEED is set."""
    return bool(hash_orders(facts))


def hash_orders(facts: Facts) -> list[ast.expr]:
    """Where the script walks over a set, or makes a list of one, or calls hash()."""
    script = facts.script
    found: list[ast.expr] = [call.node for call in script.calls_of("builtins.hash")]
    for node in script.nodes(ast.For, ast.comprehension):
        assert isinstance(node, (ast.For, ast.comprehension))
        if _is_set(facts, node.iter):
            found.append(node.iter)
    for call in script.calls_of("builtins.list", "builtins.tuple", "builtins.enumerate", "builtins.iter"):
        if call.node.args and _is_set(facts, call.node.args[0]):
            found.append(call.node)
    return found


def _is_set(facts: Facts, node: ast.expr) -> bool:
    value = facts.script.scopes.value(node)
    if isinstance(value, (ast.Set, ast.SetComp)):
        return True
    return isinstance(value, ast.Call) and facts.script.scopes.name(value.func) in (
        "builtins.set",
        "builtins.frozenset",
    )
