"""The command that starts the converted script: one process a device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.codemod.facts import Facts, gather_facts
from dp2ddp.codemod.facts.orders import hash_orders
from dp2ddp.codemod.facts.script import literal
from dp2ddp.launch.job import Job, command_line, standalone_words
from dp2ddp.source.projects import Project


@dataclass(frozen=True)
class Readiness:
    """What somebody must know of a script before several processes run it."""

    still_wrapped: str | None  # the place, "train.py:34", where it still uses DataParallel
    joins: bool  # something in it makes the processes one run
    settings: Mapping[str, str]
    visible_devices: str | None  # what it sets CUDA_VISIBLE_DEVICES to
    reads_checkpoints: bool


# What joins a process group, in the words of torch and of those who call it for their users.
JOINING = re.compile(
    r"\b(?:init_process_group|init_distributed|join_process_group|DistributedDataParallel|Accelerator|Fabric"
    r"|Trainer|deepspeed|horovod)\b"
)


# What reads a checkpoint, in torch and in libraries around it.
READING = re.compile(
    r"\b(?:torch\.load|load_state_dict|load_checkpoint|load_from_checkpoint|load_state|dcp\.load)\b"
)


def readiness(project: Project) -> Readiness:
    """Whether torchrun may start this script as it stands, and what it needs in its environment."""
    facts = gather_facts(project)
    devices = literal(facts.entry.visible_devices)
    texts = [project.entry.text, *(module.source.text for module in project.modules)]
    joins = any(map(JOINING.search, texts))
    return Readiness(
        # what merely may be DataParallel, under another name, counts where nothing else makes several processes one
        still_wrapped=_first_wrap(facts)
        or (facts.script.source.name if facts.uses_data_parallel and not joins else None),
        joins=joins,
        settings=settings_of(facts),
        visible_devices=devices if isinstance(devices, str) else None,
        reads_checkpoints=any(map(READING.search, texts)),
    )


def _first_wrap(facts: Facts) -> str | None:
    places = (
        f"{file.script.source.name}:{wrap.call.node.lineno}"
        for file in facts.files
        for wrap in file.wraps
        if not wrap.is_single
    )
    return next(places, None)


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
