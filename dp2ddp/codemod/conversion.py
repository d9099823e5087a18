"""What a conversion is asked for, and what comes of it: data, and nothing that does anything."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dp2ddp.codemod.edits import Note
from dp2ddp.codemod.helpers import HelperModule, HelperPlace
from dp2ddp.codemod.knowledge.libraries import may_be_local
from dp2ddp.codemod.plans.acceptance import AcceptOption
from dp2ddp.codemod.plans.planned import Plan, Planned
from dp2ddp.launch.job import Job, command_line, torchrun_words
from dp2ddp.source.files import Rewrite, SourceFile
from dp2ddp.source.neighbours import OtherEntry
from dp2ddp.source.projects import Project
from dp2ddp.styles import EXACT

if TYPE_CHECKING:
    from dp2ddp.codemod.idiomatic.ddp710_idiomatic_differences import StyleDifference

# A text search rejects what cannot matter, before anything is parsed.
MENTION = re.compile(
    r"(?<!Distributed)(?<!FullySharded)DataParallel|data_parallel|parallel_apply|\bfrom\s+torch\.nn\s+import\s+\*"
)


@dataclass(frozen=True)
class Options:
    """What the user may ask for."""

    style: str = EXACT
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    accept: tuple[AcceptOption, ...] = ()  # hazards that the user answers
    helpers: HelperPlace = HelperPlace.BESIDE
    renew_helpers: bool = False  # write the module with the helpers anew, whoever changed it


@dataclass(frozen=True)
class FileConversion(Rewrite):
    """One file of the user's own before and after."""

    plan: Plan | None = None  # None: nothing of DataParallel in the project
    how: ClassVar[str] = "converted"


@dataclass(frozen=True)
class Conversion:
    """A script (with its local modules) before and after, and everything that led from one to the other."""

    project: Project
    entry: FileConversion
    job: Job  # what starts the result, where nobody says where it is written
    modules: tuple[FileConversion, ...] = ()  # those that change, or that have something to say
    helpers: HelperModule | None = None  # the module with the helpers, unless they live elsewhere
    style: str = EXACT
    differences: tuple[StyleDifference, ...] = ()  # from how DataParallel trains; the exact style has none
    kept: tuple[str, ...] = ()  # what stays the same beside them
    world: int | None = None  # len(device_ids), where they can be read off
    used_by: tuple[OtherEntry, ...] = ()  # other scripts that import what is changed here
    unread: tuple[str, ...] = ()  # local modules that are no Python, libraries: nobody has looked at them

    @property
    def files(self) -> tuple[FileConversion, ...]:
        return self.entry, *self.modules

    @property
    def changed_files(self) -> tuple[FileConversion, ...]:
        """Those of the user's own, the entry script first."""
        return tuple(file for file in self.files if file.changed)

    @property
    def helper_file(self) -> dict[Path, bytes]:
        """The module with the helpers, where it has to be written."""
        module = self.helpers
        path = module.before.path if module and module.changed and self.changed else None
        return {path: module.data} if module and path else {}

    @property
    def files_beside(self) -> dict[Path, bytes]:
        """What is written beside the script: its helpers, and local modules that change."""
        changed = {module.before.path: module.data for module in self.modules if module.changed}
        return self.helper_file | {path: data for path, data in changed.items() if path}

    @property
    def written_files(self) -> dict[Path, bytes]:
        """What a conversion in place writes."""
        entry = {self.before.path: self.entry.data} if self.before.path and self.entry.changed else {}
        return self.files_beside | entry

    @property
    def held_files(self) -> dict[Path, bytes | None]:
        """What files held when they were read; None of one that was not there."""
        files = {file.before.path: file.before.data for file in self.files if not file.before.cells}
        held: dict[Path, bytes | None] = {path: data for path, data in files.items() if path}
        return held | (self.helpers.held if self.helpers else {})

    @property
    def is_project(self) -> bool:
        """Whether more than the script itself changes, or its name must stay, by which modules import it."""
        return bool(self.project.entry_names) or any(module.changed for module in self.modules)

    @property
    def before(self) -> SourceFile:
        return self.entry.before

    @property
    def after(self) -> str:
        return self.entry.after

    @property
    def changed(self) -> bool:
        return any(file.changed for file in self.files)

    @property
    def plans(self) -> Iterator[Plan]:
        return (file.plan for file in self.files if file.plan)

    @property
    def edits(self) -> tuple[Planned, ...]:
        return tuple(edit for file in self.changed_files if file.plan for edit in file.plan.edits)

    @property
    def hazards(self) -> tuple[Planned, ...]:
        """Open ones."""
        return tuple(hazard for plan in self.plans for hazard in plan.hazards)

    @property
    def accepted(self) -> tuple[Planned, ...]:
        """Hazards that a person has answered."""
        return tuple(hazard for plan in self.plans for hazard in plan.accepted)

    @property
    def notes(self) -> tuple[Planned, ...]:
        keeps_name = self.is_project
        return tuple(
            note
            for plan in self.plans
            for note in plan.notes
            if not (keeps_name and isinstance(note.finding, Note) and note.finding.of_other_name)
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """Imports that were not found, and may be the project's own: nobody has read them."""
        return tuple(filter(may_be_local, self.project.missing))

    def launch_of(self, written: str | None = None) -> str:
        """The launch line for the file that the result was written to."""
        if not written:
            return command_line(torchrun_words(self.job), self.job.settings)
        folder, path = Path(), Path(written)
        job = replace(self.job, script=written, module=None)
        if self.before.cells:  # in the folder of the notebook (of its copy), where Jupyter would run it
            assert self.before.path
            folder = path.parent if self.is_project else self.before.path.parent
            job = replace(job, script=os.path.relpath(path, folder))
        elif self.project.entry_module:
            folder = self.project.root_of(path)
            below = path.resolve().relative_to(folder.resolve())
            job = replace(job, module=".".join(below.with_suffix("").parts))
        place = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
        return place + command_line(torchrun_words(job), job.settings)

    def diff(self) -> str:
        """One file after the other."""
        return "".join(file.diff() for file in self.changed_files)

    def diff_bytes(self) -> bytes:
        return b"".join(file.diff_bytes() for file in self.changed_files)


def untouched(project: Project, style: str, unread: tuple[str, ...] = ()) -> Conversion:
    """That of a project in which nothing is of DataParallel."""
    entry = FileConversion(project.entry, project.entry.text)
    return Conversion(project, entry, Job(project.entry.name), style=style, unread=unread)
