"""The command that starts the converted script: one process a device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reading import read_program
from dp2ddp.codemod.small.orders import hash_orders
from dp2ddp.codemod.small.ours import of_the_user
from dp2ddp.codemod.small.start import join_of
from dp2ddp.codemod.small.visible import visible_text
from dp2ddp.codemod.small.wraps import find_wraps, largest_count
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
    program = read_program(project)
    texts = [project.entry.text, *(module.source.text for module in project.modules)]
    return Readiness(
        still_wrapped=_first_wrap(program),
        joins=any(map(JOINING.search, texts)),
        settings=dict(_settings(program)),
        visible_devices=visible_text(program.entry),
        reads_checkpoints=any(map(READING.search, texts)),
    )


def _first_wrap(program: Program) -> str | None:
    wraps = (wrap for wrap in find_wraps(program) if not wrap.is_single)
    return next((f"{wrap.module.source.name}:{wrap.node.lineno}" for wrap in wraps), None)


def world_of(program: Program) -> int | None:
    """How many devices the script names, by device_ids or CUDA_VISIBLE_DEVICES; None if it takes what is there."""
    visible = visible_text(program.entry)
    named = len([index for index in visible.split(",") if index.strip()]) if visible is not None else None
    return largest_count(find_wraps(program)) or named


def launch_line(program: Program, world: int | None, is_project: bool) -> str:
    """The torchrun line; `gpu` lets torchrun count the GPUs."""
    source = program.entry.source
    path = source.output if is_project else source.beside
    name = str(path) if path else "train_ddp.py"
    package = program.project.entry_module.rpartition(".")[0]
    module = f"{package}.{name.rpartition('/')[2].removesuffix('.py')}" if package else None
    return command_line(standalone_words(Job(name, module, gpus=world)), dict(_settings(program)))


def _settings(program: Program) -> Iterator[tuple[str, str]]:
    """The environment variables that ranks need from their first moment on."""
    reach = program.reach
    if any(reach.runs(module, node) for module in of_the_user(program) for node in hash_orders(module)):
        yield "PYTHONHASHSEED", "0"
    join, devices = join_of(program.entry), visible_text(program.entry)
    if join and join.late and devices is not None:
        yield "CUDA_VISIBLE_DEVICES", devices
