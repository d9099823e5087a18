"""What is verified: the script, its conversion, the working folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import RunError
from dp2ddp.options import VerifyOptions
from dp2ddp.source.folders import kept_root
from dp2ddp.source.projects import Project, read_project
from dp2ddp.trial.scripts import (
    conversion_of,
    existing_script,
    folder_of,
    hidden_library,
    mended_files_of,
    module_of,
    script_file,
    starts_its_ranks,
)

if TYPE_CHECKING:
    from dp2ddp.codemod.conversion import Conversion

HASHES = "PYTHONHASHSEED"
COPY = "FOLDER"  # stands for the one that a project is converted into


@dataclass(frozen=True)
class Version:
    """The DDP version as files, and what it says about its start."""

    data: bytes
    name: str
    # local ones converted with it, by their own places
    modules: Mapping[Path, bytes] = field(default_factory=dict)
    launch: str = ""  # the line that starts it, once it is written
    world: int | None = None  # the number of devices that the script names
    conversion: Conversion | None = None  # of ours; None for a version of the user's own
    starts_ranks: bool = False  # it is started once, and starts its ranks itself


@dataclass(frozen=True)
class Subject:
    """What is verified."""

    options: VerifyOptions
    script: Path
    name: str  # as the user wrote it
    version: Version
    folder: Path  # the working folder
    module: str | None = None  # "package.train", of what is started with `python -m`
    mended: Mapping[Path, bytes] = field(default_factory=dict)  # files too old to run as they stand
    local_files: tuple[Path, ...] = ()  # the modules of the user's own that the script imports
    own_hashes: bool = True  # each rank has other hashes of strings, as under torchrun: the user has set none
    # each rank may load and judge rows of its own, and still mean the same; what convert writes in DataParallel's place
    # draws the same numbers, and has to show it
    rows_by_rank: bool = False
    torchrun: bool = True  # the judged run starts as a user will start it; or else it is forked, too
    float32: bool = True  # trained in float32 as well, which shows what doubles hide
    port: Path | None = None  # the user's own version, which runs where it lies
    # of a library that wraps by itself: what it does, and does otherwise on ranks
    hidden: tuple[str, ...] = ()
    changed_since: Path | None = None  # a converted script that lies there, and is another one

    @property
    def worlds(self) -> tuple[int, ...]:
        """The numbers of devices that it is verified on."""
        return self.options.worlds or (self.version.world or 2,)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was compared, where its owner may think otherwise."""
        if self.changed_since is None:
            return self.hidden
        name = self.changed_since.name
        text = f"{name} as it lies there is NOT what was verified: it differs from what convert writes today"
        return (
            *self.hidden,
            f"{text}. To verify it: dp2ddp verify {shlex.quote(self.name)} --converted {shlex.quote(name)}",
        )

    @property
    def arguments_of_converted(self) -> tuple[str, ...]:
        """The arguments of the DDP version: its own, or else the script's."""
        given = self.options.converted_arguments
        return tuple(self.options.arguments if given is None else given)

    @property
    def convert(self) -> str:
        """The line that writes our conversion; in a project the script keeps its name, so a copy is written."""
        conversion = self.version.conversion
        if conversion is None:
            return ""
        module = ["-m"] if self.options.as_module else []
        accepted = [word for text in self.options.accept for word in ("--accept", text)]
        place = ["-o", COPY] if conversion.is_project else []
        return shlex.join(["dp2ddp", "convert", *module, str(self.options.script), *accepted, *place])


def subject_of(options: VerifyOptions) -> Subject:
    """A script (or module), and the user's own version of it or else its conversion.

    Its `progress.warn` gets a line for each thing in the original that had to be mended before it could run.
    Raises HazardError if it cannot be converted without its owner, RunError if there is nothing to convert.
    """
    script = script_file(options.script, options.as_module)
    module = module_of(script, options.as_module)
    project = read_project(script, options.as_module)
    port = options.port
    hidden: tuple[str, ...] = ()
    if port is None:
        conversion = conversion_of(project, accept=options.answers)
        hidden = tuple(_of_library(project, conversion))
        if not conversion.changed and not hidden:
            why = "".join(f"\n  line {each.line}: {each.because}" for each in conversion.notes)
            raise RunError(
                f"{script}: nothing to convert, so nothing to compare; name your own version with --converted{why}"
            )
        port = None if conversion.changed else script
    version = _converted(script, conversion) if port is None else _given(port, options.launcher)
    return Subject(
        options=options,
        script=script,
        name=str(script),
        version=version,
        mended=mended_files_of(project, options.progress.warn),
        local_files=tuple(each.source.path.resolve() for each in project.modules if each.source.path),
        rows_by_rank=port is not None or bool(hidden),
        hidden=hidden,
        module=module,
        folder=folder_of(script),
        own_hashes=not chosen_hashes(),
        port=port,
        changed_since=None if port else _changed_since(version),
    )


def _of_library(project: Project, conversion: Conversion) -> Iterator[str]:
    from dp2ddp.codemod.edits import Hazard

    if library := hidden_library(project):
        yield f"{library} wraps the model by itself: in DataParallel under python, in DDP under torchrun"
        yield from (
            f"{each.file or conversion.before.name}:{each.line}: {each.because}; {each.finding.advice}"
            for each in conversion.hazards
            if isinstance(each.finding, Hazard)
        )


def chosen_hashes() -> str:
    """What the user has set for the hashes of strings in all processes; "" where they are random."""
    chosen = os.environ.get(HASHES, "")
    return "" if chosen == "random" else chosen


def _changed_since(version: Version) -> Path | None:
    """The script that convert wrote, where somebody has changed it since, or that another dp2ddp wrote."""
    if version.conversion is None or version.conversion.is_project:
        return None
    written = version.conversion.before.beside
    there = written is not None and written.is_file() and written.read_bytes() != version.data
    return written if there else None


def _in_copy(script: Path, conversion: Conversion) -> Path:
    """The script of a project in the copy that `Subject.convert` writes: what lies here stays what it is."""
    entry, *others = (Path(os.path.realpath(each)) for each in (script, *conversion.files_beside))
    root = kept_root(entry.parent) or os.path.commonpath([entry.parent, *(each.parent for each in others)])
    return Path(COPY, entry.relative_to(root))


def _given(converted: Path, launcher: str | None) -> Version:
    existing_script(converted)
    own = starts_its_ranks(converted) if launcher is None else launcher == "python"
    launch = "python" if own else "torchrun --standalone --nproc-per-node N"
    line = f"{launch} {shlex.quote(str(converted))}"
    return Version(converted.read_bytes(), converted.name, launch=line, starts_ranks=own)


def _converted(script: Path, conversion: Conversion) -> Version:
    # in a converted project the script keeps its name, which may become the name of a folder of results
    written = conversion.before.output if conversion.is_project else conversion.before.beside
    name = written.name if written else script.name
    started = written if conversion.before.cells else None
    if conversion.is_project and written:
        started = _in_copy(written, conversion)
    launch = conversion.launch_of(str(started) if started else None)
    return Version(conversion.entry.data, name, conversion.files_beside, launch, conversion.world, conversion)
