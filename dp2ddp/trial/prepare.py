"""Each run of a trial gets a scratch copy of the working folder, and a stage to run on."""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.copies.scratch import Copies, Workspace, copy_folders
from dp2ddp.errors import RunError
from dp2ddp.report.failure_text import MORE_SPACE
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.source.helper_module import FILE
from dp2ddp.trial.scripts import module_of
from dp2ddp.trial.subject import Subject

# Of random, numpy and torch, for scripts that set none: both runs have to begin somewhere. No script may set the same
# number: ranks take it for the seed that they began with, and replicas' streams would not begin anew.
SEED = 2_718_281_828


@dataclass(frozen=True)
class RunKind:
    """What sort of run."""

    mode: Mode
    dtype: str
    nudged: bool = False  # an ulp away: shows what rounding alone makes of the training
    aligned: bool = False  # draws the same random numbers as the other of its pair
    repeated: bool = False  # is another one only where something else than its seeds decides
    lockstep: bool = False  # takes over DataParallel's state after each step
    again: int = 0  # how often it was ended before, and had to make room for others (rounds.py)

    @property
    def beside(self) -> str:
        """What it is beside a run of its mode and precision, in words: ", moved by an ulp"."""
        words = {
            "moved by an ulp": self.nudged,
            "random numbers aligned": self.aligned,
            "in lockstep": self.lockstep,
            "once more": self.repeated,
            "again": self.again,
        }
        return "".join(f", {each}" * count for each, count in words.items())


@dataclass(frozen=True)
class Prepared:
    """A stage and the scratch copies that it runs in."""

    kind: RunKind
    stage: Stage
    copies: Copies

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        """The copies, of the working folder first."""
        return self.copies.workspaces


@contextmanager
def originals_kept(prepared: Sequence[Prepared]) -> Iterator[None]:
    """Around runs: RunError if one of them, however it ended, changed a file of the user's past what watches it."""
    try:
        yield
    finally:
        for each in prepared:
            for path in (path for workspace in each.workspaces for path in workspace.changed_originals()):
                raise RunError(
                    f"{path}: changed while {each.stage.name} ran in {each.kind.mode} mode, which had a link to it: "
                    "the script wrote through that by means that dp2ddp does not see, or another program changed it; "
                    "look whether it is what it should be"
                )


@contextmanager
def full_disk_is_said() -> Iterator[None]:
    """RunError in place of what Python says where a copy, or a record, could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename or tempfile.gettempdir()
        raise RunError(f"{place}: no space left for a scratch copy; {MORE_SPACE}") from error


def prepare(subject: Subject, kind: RunKind, world: int, scratch: Path) -> Prepared:
    """A scratch copy of everything that a run needs, with the conversion in it, and the stage that runs there."""
    mode, written = kind.mode, Path(subject.name).with_name(subject.version.name)
    room = scratch / "-".join(re.findall(r"\w+", f"{mode} {kind.dtype}{kind.beside} {world}"))
    script = subject.script.resolve()
    converted = subject.port.resolve() if subject.port else script.with_name(subject.version.name)
    folders = [subject.folder.resolve(), *(path.parent for path in (script, converted))]
    copies = copy_folders(
        folders, _files(subject, mode, converted), room, scratch, (script, *subject.local_files)
    )
    arguments = subject.arguments_of_converted if mode == "ddp" else subject.options.arguments
    stage = Stage(
        script=str(copies.place(converted if mode == "ddp" else script)),
        name=str(subject.port or written) if mode == "ddp" else subject.name,
        module=_module_of(subject) if mode == "ddp" else subject.module,
        mode=mode,
        beside=kind.beside,
        world=world,
        folder=str(copies.place(folders[0])),
        run_folder=str(room / "run"),
        arguments=tuple(copies.here(argument) for argument in arguments),
        scratch=str(room),
        owned=tuple(str(folder) for each in copies.workspaces for folder in each.inside),
        holder=copies.holder.process.pid if copies.holder else None,
        moved=copies.moved,
        kept=tuple(map(str, copies.kept)),
        trace=str(room / "trace"),
        steps=subject.options.steps,
        dtype=kind.dtype,
        nudged=kind.nudged,
        aligned=str(scratch / f"order-{kind.dtype}-{world}") if kind.aligned else None,
        lockstep=str(scratch / f"lockstep-{world}") if kind.lockstep else None,
        rank_order=kind.dtype == "float32",
        sample_streams=subject.rows_by_rank,
        seed=SEED,
        real=False,
        own_hashes=mode == "ddp" and subject.own_hashes,
        capture=True,
        starts_ranks=mode == "ddp" and subject.version.starts_ranks,
        rank_in_arguments=mode == "ddp" and subject.options.converted_arguments is not None,
    )
    return Prepared(kind, stage, copies)


def _files(subject: Subject, mode: Mode, converted: Path) -> dict[Path, bytes]:
    """What lies in the copies in the place of what the user has there, by the user's paths."""
    files = {_real(path): data for path, data in subject.mended.items()}
    if not subject.port and (mode == "ddp" or converted != subject.script.resolve()):
        files[converted] = subject.version.data
    modules = {_real(path): data for path, data in subject.version.modules.items()}
    # a script that counts or copies its own code finds as many files in both runs
    return files | {path: data for path, data in modules.items() if mode == "ddp" or not path.exists()}


def _real(path: Path) -> Path:
    """Where a file is, whatever links lead to it; the helpers' name is not followed: another folder's may be behind."""
    return path.parent.resolve() / path.name if path.name == FILE else path.resolve()


def _module_of(subject: Subject) -> str | None:
    """What the converted script is called in its package."""
    if subject.port:
        beside = subject.port.resolve().parent == subject.script.resolve().parent
        return module_of(subject.port, as_module=bool(subject.module) and beside)
    package = (subject.module or "").rpartition(".")[0]
    return f"{package}.{Path(subject.version.name).stem}" if subject.module else None
