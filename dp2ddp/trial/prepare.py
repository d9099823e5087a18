"""Each run of a trial gets a scratch copy of the working folder, and a stage to run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.comparison.workspace import Workspace, copy_folder
from dp2ddp.errors import RunError
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.source.helper_module import FILE
from dp2ddp.trial.scripts import module_of
from dp2ddp.trial.subject import Subject

SEED = 20  # of random, numpy and torch, for scripts that set none: both runs have to begin somewhere


@dataclass(frozen=True)
class RunKind:
    """What sort of run."""

    mode: Mode
    dtype: str
    nudged: bool = False  # an ulp away: shows what rounding alone makes of the training
    aligned: bool = False  # draws the same random numbers as the other of its pair
    lockstep: bool = False  # takes over DataParallel's state after each step
    again: int = 0  # how often it was ended before, and had to make room for others (rounds.py)

    @property
    def name(self) -> str:
        """What the run's folder is called."""
        words = "-nudged" * self.nudged + "-aligned" * self.aligned + "-lockstep" * self.lockstep
        words += "-again" * self.again
        return f"{self.mode}-{self.dtype}{words}"


@dataclass(frozen=True)
class Prepared:
    """A stage and the scratch copy that it runs in."""

    kind: RunKind
    stage: Stage
    workspaces: tuple[Workspace, ...]  # of the working folder first


def prepare(subject: Subject, kind: RunKind, world: int, scratch: Path) -> Prepared:
    """A scratch copy of everything that a run needs, with the conversion in it, and the stage that runs there."""
    mode = kind.mode
    room = scratch / f"{kind.name}-{world}"
    workspaces = _copies(subject, room)
    _put_modules(subject.mended, workspaces)
    script = _place(subject.script, workspaces)
    converted = _place(subject.port, workspaces) if subject.port else script.with_name(subject.converted_name)
    if not subject.port and (mode == "ddp" or converted != script):
        converted.write_bytes(subject.converted)
    if mode == "ddp":
        _put_modules(subject.modules, workspaces)
    workspaces = tuple(workspace.with_new_inventory() for workspace in workspaces)
    arguments = subject.arguments_of_converted if mode == "ddp" else subject.arguments
    stage = Stage(
        script=str(converted if mode == "ddp" else script),
        name=_name_of_converted(subject) if mode == "ddp" else subject.name,
        module=_module_of(subject) if mode == "ddp" else subject.module,
        mode=mode,
        world=world,
        folder=str(workspaces[0].folder),
        run_folder=str(room / "run"),
        arguments=tuple(workspaces[0].here(argument) for argument in arguments),
        scratch=str(room),
        moved=tuple((str(workspace.original), str(workspace.folder)) for workspace in workspaces),
        trace=str(room / "trace"),
        steps=subject.steps,
        every=subject.every,
        dtype=kind.dtype,
        nudged=kind.nudged,
        aligned=str(order_folder(kind.dtype, world, scratch)) if kind.aligned else None,
        lockstep=str(scratch / f"lockstep-{world}") if kind.lockstep else None,
        rank_order=kind.dtype == "float32",
        sample_streams=subject.sample_streams,
        seed=SEED,
        real=False,
        own_hashes=mode == "ddp" and subject.own_hashes,
        capture=True,
        starts_ranks=mode == "ddp" and subject.starts_ranks,
        variables=subject.variables if mode == "ddp" else (),
        rank_in_arguments=mode == "ddp" and subject.converted_arguments is not None,
    )
    return Prepared(kind, stage, workspaces)


def order_folder(dtype: str, world: int, scratch: Path) -> Path:
    """Where an aligned pair leaves the order of its batches."""
    return scratch / f"order-{dtype}-{world}"


def _name_of_converted(subject: Subject) -> str:
    return str(subject.port or Path(subject.name).with_name(subject.converted_name))


def _module_of(subject: Subject) -> str | None:
    """What the converted script is called in its package."""
    if subject.port:
        beside = subject.port.resolve().parent == subject.script.resolve().parent
        return module_of(subject.port, as_module=bool(subject.module) and beside)
    package = (subject.module or "").rpartition(".")[0]
    return f"{package}.{Path(subject.converted_name).stem}" if subject.module else None


def _copies(subject: Subject, room: Path) -> tuple[Workspace, ...]:
    """Copies of the working folder, and of the folders of both scripts where they lie elsewhere."""
    copies = [copy_folder(subject.folder, room / "folder")]
    for name, script in (("script", subject.script), ("port", subject.port)):
        folder = (script or subject.script).resolve().parent
        if not any(folder.is_relative_to(workspace.original) for workspace in copies):
            copies.append(copy_folder(folder, room / name))
    return tuple(copies)


def _place(script: Path, workspaces: Sequence[Workspace]) -> Path:
    """Where a script of the user's is in the copies."""
    path = script.resolve()
    home = next(workspace for workspace in workspaces if path.is_relative_to(workspace.original))
    return home.folder / path.relative_to(home.original)


def _put_modules(modules: Mapping[Path, bytes], workspaces: Sequence[Workspace]) -> None:
    """The converted local modules, in the place of the script's own; also where both copies hold one."""
    for path, data in modules.items():
        place = path.parent.resolve() / path.name  # the helpers' may be a link to those of another folder
        path = place if path.name == FILE else path.resolve()
        homes = [workspace for workspace in workspaces if path.is_relative_to(workspace.original)]
        if not homes:
            raise RunError(
                f"{path}: belongs to the conversion, but lies outside of the working folder and of the script's; "
                "start `dp2ddp verify` in a folder that holds both"
            )
        for home in homes:
            copy = home.folder / path.relative_to(home.original)
            if copy.is_symlink():  # what it leads to is the user's
                copy.unlink()
            copy.write_bytes(data)
