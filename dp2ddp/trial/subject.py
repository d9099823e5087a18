"""What is verified: the script, its conversion, the working folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import RunError
from dp2ddp.source.projects import Project, read_project
from dp2ddp.trial.launcher import launch_line, starts_its_ranks
from dp2ddp.trial.scripts import (
    conversion_of,
    existing_script,
    folder_of,
    mended_files_of,
    module_of,
    script_file,
)
from dp2ddp.trial.wanted import Wanted

if TYPE_CHECKING:
    from dp2ddp.codemod.acceptance import AcceptOption
    from dp2ddp.codemod.convert import Conversion

HASHES = "PYTHONHASHSEED"


@dataclass(frozen=True)
class Subject:
    """What is verified."""

    script: Path
    name: str  # as the user wrote it
    converted: bytes
    converted_name: str
    modules: Mapping[Path, bytes]  # the local modules that are converted with it, by their own places
    arguments: tuple[str, ...]
    folder: Path  # the working folder
    module: str | None = None  # "package.train", of what is started with `python -m`
    mended: Mapping[Path, bytes] = field(default_factory=dict)  # files too old to run as they stand
    steps: int | None = None
    patience: float | None = None
    own_hashes: bool = True  # nothing says that all ranks are to have the same hashes of strings
    sample_streams: bool = (
        False  # every sample draws from a stream of its own, in both runs (runtime/samples.py)
    )
    torchrun: bool = True  # the judged run starts as a user will start it; or else it is forked, too
    float32: bool = True  # trained in float32 as well, which shows what doubles hide
    every: int = 1  # tensors are recorded and compared at each N-th step
    only_gradients: bool = False  # judged: gradients and parameters of every step
    starts_ranks: bool = False  # the converted version is started once, and starts its ranks itself
    launch: str = ""  # the line that starts the converted script
    convert: str = ""  # the line that writes our conversion
    world: int | None = None  # the number of devices that the script names
    conversion: Conversion | None = None  # of ours; None for a version of the user's own
    aligned: bool = False  # judged with the same random numbers in both runs (runtime/aligned.py)
    port: Path | None = None  # the user's own version, which runs where it lies
    variables: tuple[tuple[str, str], ...] = ()  # of another launcher, which the port asks for (launches.py)
    converted_arguments: tuple[str, ...] | None = (
        None  # where the converted script takes others than the original
    )

    @property
    def arguments_of_converted(self) -> tuple[str, ...]:
        return self.arguments if self.converted_arguments is None else self.converted_arguments


@dataclass(frozen=True)
class _Converted:
    """A conversion as files, and what it says about its start."""

    data: bytes
    name: str
    modules: Mapping[Path, bytes]
    launch: str
    world: int | None
    conversion: Conversion | None = None
    starts_ranks: bool = False


def subject_of(wanted: Wanted, see: Callable[[str], None] = print) -> Subject:
    """A script (or module) and the version of the user's own, or else its conversion; HazardError if it has none.

    `see` is told, a line at a time, what of the original had to be mended before it could run.
    """
    script = script_file(wanted.script, wanted.as_module)
    module = module_of(script, wanted.as_module)
    project = read_project(script, wanted.as_module)
    port = wanted.converted
    found = _given(port, wanted.launcher) if port else _converted(script, project, wanted.answers)
    return Subject(
        script=script,
        name=str(script),
        converted=found.data,
        converted_name=found.name,
        modules=found.modules,
        mended=mended_files_of(project, see),
        # A version of the user's own may load each row on another rank than DataParallel's one process did, and
        # still mean the same. What convert writes draws the same numbers, and has to show it.
        sample_streams=port is not None,
        module=module,
        arguments=wanted.arguments,
        converted_arguments=wanted.converted_arguments,
        folder=folder_of(script),
        steps=wanted.steps,
        every=wanted.every,
        only_gradients=wanted.only_gradients,
        aligned=wanted.aligned,
        patience=wanted.patience,
        own_hashes=not (HASHES in found.launch or os.environ.get(HASHES, "random") != "random"),
        starts_ranks=found.starts_ranks,
        launch=found.launch,
        convert=_convert_line(wanted, found.conversion) if found.conversion else "",
        world=found.world,
        conversion=found.conversion,
        port=port,
    )


def _convert_line(wanted: Wanted, conversion: Conversion) -> str:
    """What writes the conversion that is verified; in a project the script keeps its name, so a copy is written."""
    module = ["-m"] if wanted.as_module else []
    accepted = [word for text in wanted.accept for word in ("--accept", text)]
    place = ["-o", "FOLDER"] if conversion.is_project else []
    return shlex.join(["dp2ddp", "convert", *module, str(wanted.script), *accepted, *place])


def _given(converted: Path, launcher: str | None) -> _Converted:
    existing_script(converted)
    own = starts_its_ranks(converted) if launcher is None else launcher == "python"
    launch = launch_line(converted, own)
    return _Converted(converted.read_bytes(), converted.name, {}, launch, None, starts_ranks=own)


def _converted(script: Path, project: Project, accept: tuple[AcceptOption, ...]) -> _Converted:
    conversion = conversion_of(project, accept=accept)
    if not conversion.changed:
        raise RunError(
            f"{script}: nothing to convert, so nothing to compare; name your own version with --converted"
        )
    # in a converted project the script keeps its name, which may become the name of a folder of results
    written = conversion.before.output if conversion.is_project else conversion.before.beside
    name = written.name if written else script.name
    started = conversion.before.cells and not conversion.is_project and conversion.before.beside
    launch = conversion.launch_of(str(started) if started else None)
    return _Converted(
        conversion.entry.data, name, conversion.files_beside, launch, conversion.world, conversion
    )
