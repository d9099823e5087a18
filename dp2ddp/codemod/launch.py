"""The command that starts the converted script: one process a device."""

from __future__ import annotations

import shlex
from pathlib import Path

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.orders import hash_orders
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
    seed = "PYTHONHASHSEED=0 " if depends_on_hashes(facts) else ""
    name = script or converted_name(facts)
    package = facts.modules.entry_module.rpartition(".")[0]
    started = f"-m {package}.{Path(name).stem}" if package else shlex.quote(name)
    devices = literal(facts.entry.visible_devices) if facts.entry.late_devices else None
    seed += f"CUDA_VISIBLE_DEVICES={shlex.quote(devices)} " if isinstance(devices, str) else ""
    return f"{seed}torchrun --standalone --nproc-per-node {world or 'gpu'} {started}"


def depends_on_hashes(facts: Facts) -> bool:
    """Whether something that can run walks over a set."""
    return any(facts.reach.holds(one.script, node) for one in facts.files for node in hash_orders(one.script))


def entry_name(facts: Facts) -> str:
    """The script as it was named; it keeps its place in a converted project; a notebook becomes a script."""
    path = facts.script.source.output
    return "train.py" if path is None else str(path)


def converted_name(facts: Facts) -> str:
    path = facts.script.source.beside
    return "train_ddp.py" if path is None else str(path)
