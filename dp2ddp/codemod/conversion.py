"""What a conversion is asked for, and what comes of it: data, and nothing that does anything."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dp2ddp.codemod.helpers import HelperModule, HelperPlace
from dp2ddp.codemod.plans.acceptance import AcceptOption
from dp2ddp.codemod.plans.planned import Plan, Planned
from dp2ddp.source.files import Rewrite, SourceFile
from dp2ddp.source.neighbours import OtherEntry
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

    entry: FileConversion
    modules: tuple[FileConversion, ...] = ()  # those that change, or that have something to say
    helpers: HelperModule | None = None  # the module with the helpers, unless they live elsewhere
    keeps_name: bool = False  # modules import the script itself: it must be called what they call it
    style: str = EXACT
    differences: tuple[StyleDifference, ...] = ()  # from how DataParallel trains; the exact style has none
    kept: tuple[str, ...] = ()  # what stays the same beside them
    world: int | None = None  # len(device_ids), where they can be read off
    launch: str = ""
    entry_module: str = ""  # "package.train", of a script that is started with -m
    used_by: tuple[OtherEntry, ...] = ()  # other scripts that import what is changed here
    # imports that were not found, and may be the project's own: nobody has read them
    missing: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # local modules that are no Python: nobody has looked at them either
    links: Mapping[Path, Path] = field(default_factory=dict, compare=False)  # of modules that a link leads to

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
        """Whether more than the script itself changes, or its name must stay."""
        return self.keeps_name or any(module.changed for module in self.modules)

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
    def edits(self) -> tuple[Planned, ...]:
        return tuple(edit for file in self.files if file.plan and file.changed for edit in file.plan.edits)

    @property
    def hazards(self) -> tuple[Planned, ...]:
        """Open ones."""
        return tuple(hazard for file in self.files if file.plan for hazard in file.plan.hazards)

    @property
    def accepted(self) -> tuple[Planned, ...]:
        """Hazards that a person has answered."""
        return tuple(hazard for file in self.files if file.plan for hazard in file.plan.accepted)

    @property
    def notes(self) -> tuple[Planned, ...]:
        return tuple(note for file in self.files if file.plan for note in file.plan.notes)

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables that the launch line sets."""
        pairs = (word.partition("=") for word in shlex.split(self.launch.partition("torchrun ")[0]))
        return {name: value for name, _, value in pairs}

    def launch_of(self, written: str | None) -> str:
        """The launch line for the file that the result was written to; a notebook starts the script that it writes."""
        if not written:
            return self.launch
        if written.endswith(".ipynb"):
            return self.launch_with(f"{Path(written).stem}.py")
        if self.before.cells:
            return self._launch_of_notebook(written)
        if not self.entry_module:
            return self.launch_with(written)
        root = Path(written).parents[self.entry_module.count(".")]
        name = ".".join(Path(written).relative_to(root).with_suffix("").parts)
        place = "" if root == Path() else f"cd {shlex.quote(str(root))} && "
        return place + self.launch_with(name)

    def launch_with(self, name: str) -> str:
        """The launch line with another name for the script."""
        old = shlex.split(self.launch)[-1]
        return self.launch.removesuffix(shlex.quote(old)) + shlex.quote(name)

    def _launch_of_notebook(self, written: str) -> str:
        """In the folder of the notebook (of its copy), where Jupyter would run it."""
        assert self.before.path
        here = self.before.path.parent if not self.is_project else Path(written).parent
        place = "" if here == Path() else f"cd {shlex.quote(str(here))} && "
        return place + self.launch_with(os.path.relpath(written, here))

    def diff(self) -> str:
        """One file after the other."""
        return "".join(file.diff() for file in self.changed_files)

    def diff_bytes(self) -> bytes:
        return b"".join(file.diff_bytes() for file in self.changed_files)
