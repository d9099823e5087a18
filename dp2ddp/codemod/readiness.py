"""Whether torchrun may start a script as it stands, and what it needs in its environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dp2ddp.codemod.convert import OF_OTHERS, convert
from dp2ddp.codemod.launch import settings_of
from dp2ddp.codemod.looks.hidden_wraps import hidden_wraps, library_wraps
from dp2ddp.codemod.looks.ours import has_joined, of_the_user
from dp2ddp.codemod.looks.start import visible_text
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.plans.plan import plan_file
from dp2ddp.codemod.reading import read_program
from dp2ddp.codemod.rule import rules_of_style
from dp2ddp.source.projects import Project
from dp2ddp.styles import EXACT


@dataclass(frozen=True)
class Readiness:
    """What somebody must know of a script before several processes run it."""

    still_wrapped: str | None  # the place, "train.py:34", where it still uses DataParallel
    around: str  # the library that trains it by DDP as it is, where convert changes what the script does around that
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
    """What a script and its local modules say."""
    program = read_program(project)
    libraries = library_wraps(program)
    by_library = [wrap for wrap in hidden_wraps(program) if not wrap.library.starts_ddp]
    wraps = [(wrap.module, wrap.node) for wrap in find_wraps(program) if not wrap.is_single]
    wraps += [(wrap.module, wrap.node) for wrap in by_library]
    places = [f"{module.source.name}:{node.lineno}" for module, node in wraps]
    joins = any(map(JOINING.search, project.texts)) and not by_library
    # what merely may be DataParallel, under another name, counts where nothing else makes several processes one
    if not places and not joins and _may_be_wrapped(program):
        places = [program.entry.source.name]
    return Readiness(
        still_wrapped=next(iter(places), None),
        around=libraries[0].library.name if libraries and convert(project).changed else "",
        joins=joins,
        settings=settings_of(program),
        visible_devices=visible_text(program.entry),
        reads_checkpoints=any(map(READING.search, project.texts)),
    )


def _may_be_wrapped(program: Program) -> bool:
    """Whether DataParallel may be there in disguise."""
    rules = [rule for rule in rules_of_style(EXACT) if rule.code in OF_OTHERS]
    plans = (plan_file(module, rules, ()) for module in of_the_user(program))
    return not has_joined(program.entry) and any(plan.hazards for plan in plans)
