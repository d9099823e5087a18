"""The command that starts the converted script: one process a device."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.orders import hash_orders
from dp2ddp.codemod.facts.script import literal
from dp2ddp.launch.job import Job, command_line, standalone_words


def world_of(facts: Facts) -> int | None:
    """How many devices the script names, by device_ids or CUDA_VISIBLE_DEVICES; None if it takes what is there."""
    if facts.count:
        return facts.count
    visible = literal(facts.entry.visible_devices)
    return len([index for index in visible.split(",") if index.strip()]) if isinstance(visible, str) else None


def launch_line(facts: Facts, script: str | None = None) -> str:
    """The torchrun line; `gpu` lets torchrun count the GPUs."""
    name = script or converted_name(facts)
    package = facts.modules.entry_module.rpartition(".")[0]
    module = f"{package}.{Path(name).stem}" if package else None
    return command_line(standalone_words(Job(name, module, gpus=world_of(facts))), settings_of(facts))


def settings_of(facts: Facts) -> dict[str, str]:
    """The environment variables that ranks need from their first moment on."""
    seed = {"PYTHONHASHSEED": "0"} if depends_on_hashes(facts) else {}
    devices = literal(facts.entry.visible_devices) if facts.entry.late_devices else None
    return seed | ({"CUDA_VISIBLE_DEVICES": devices} if isinstance(devices, str) else {})


def depends_on_hashes(facts: Facts) -> bool:
    """Whether something that can run walks over a set."""
    return any(
        facts.reach.holds(file.script, node) for file in facts.files for node in hash_orders(file.script)
    )


def entry_name(facts: Facts) -> str:
    """The script as it was named; it keeps its place in a converted project; a notebook becomes a script."""
    path = facts.script.source.output
    return "train.py" if path is None else str(path)


def converted_name(facts: Facts) -> str:
    path = facts.script.source.beside
    return "train_ddp.py" if path is None else str(path)
