"""One experiment of `verify`: four runs of a script on W devices, in scratch copies, compared.

DataParallel, float64   forked        the reference
DDP, float64            torchrun      the converted script as a user will start it
DataParallel, float32   forked        shown beside it
DDP, float32            forked
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from dp2ddp.errors import RunError
from dp2ddp.report.run import failure_text
from dp2ddp.runtime import launch
from dp2ddp.runtime.run import Process, Run, Running, watch
from dp2ddp.runtime.server import Server
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.trace.records import read_trace
from dp2ddp.verify.compare import Comparison, compare
from dp2ddp.verify.outputs import FileDifference, FilesComparison, OwnCode, compare_files, compare_text
from dp2ddp.verify.spelling import Spelling
from dp2ddp.verify.tolerance import FLOAT32, FLOAT64, Tolerance
from dp2ddp.verify.verdict import Verdict
from dp2ddp.verify.workspace import Workspace, content_hash, copy_folder, digest

SEED = 20  # of random, numpy and torch, for scripts that set none: both runs have to begin somewhere


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


@dataclass(frozen=True)
class _Prepared:
    """A stage and the scratch copy that it runs in."""

    stage: Stage
    workspaces: tuple[Workspace, ...]  # of the working folder; of the script's, if that is elsewhere


def environment() -> dict[str, str]:
    """As for any run; strings have the same hashes in the process with DataParallel and on rank 0."""
    return {**launch.environment(), "PYTHONHASHSEED": "0"}


def try_on(
    subject: Subject, world: int, server: Server, scratch: Path, see: Callable[[str], None]
) -> Verdict:
    """Run both on `world` devices and compare; RunError if one of them fails."""
    kinds: list[tuple[Mode, str]] = [
        ("dp", "float64"),
        ("ddp", "float64"),
        ("dp", "float32"),
        ("ddp", "float32"),
    ]
    prepared = [_prepare(subject, mode, world, dtype, scratch) for mode, dtype in kinds]
    runs = _run_all(subject, prepared, server, see)
    return _judge(prepared, runs, server, scratch, _own_code(subject))


def _prepare(subject: Subject, mode: Mode, world: int, dtype: str, scratch: Path) -> _Prepared:
    room = scratch / f"{mode}-{dtype}-{world}"
    workspaces, script = _copies(subject, room)
    _put_modules(subject.mended, workspaces)
    converted = script.with_name(subject.converted_name)
    if mode == "ddp" or converted != script:
        converted.write_bytes(subject.converted)
    if mode == "ddp":
        _put_modules(subject.modules, workspaces)
    workspaces = tuple(workspace.looked_at_again() for workspace in workspaces)
    stage = Stage(
        script=str(converted if mode == "ddp" else script),
        name=str(Path(subject.name).with_name(subject.converted_name)) if mode == "ddp" else subject.name,
        module=_module_of(subject) if mode == "ddp" else subject.module,
        mode=mode,
        world=world,
        folder=str(workspaces[0].folder),
        desk=str(room / "desk"),
        arguments=tuple(workspaces[0].here(argument) for argument in subject.arguments),
        scratch=str(room),
        moved=tuple((str(one.original), str(one.folder)) for one in workspaces),
        trace=str(room / "trace"),
        steps=subject.steps,
        dtype=dtype,
        sample_streams=subject.sample_streams,
        seed=SEED,
        real=False,
        own_hashes=mode == "ddp" and subject.own_hashes,
        capture=True,
    )
    return _Prepared(stage, workspaces)


def _module_of(subject: Subject) -> str | None:
    """What the converted script is called in its package."""
    package = (subject.module or "").rpartition(".")[0]
    return f"{package}.{Path(subject.converted_name).stem}" if subject.module else None


def _copies(subject: Subject, room: Path) -> tuple[tuple[Workspace, ...], Path]:
    """Scratch copies, and the script's place in them."""
    workspace = copy_folder(subject.folder, room / "folder")
    script = subject.script.resolve()
    if script.is_relative_to(subject.folder):
        return (workspace,), workspace.folder / script.relative_to(subject.folder)
    beside = copy_folder(script.parent, room / "script")
    return (workspace, beside), beside.folder / script.name


def _put_modules(modules: Mapping[Path, bytes], workspaces: Sequence[Workspace]) -> None:
    """The converted local modules, in the place of the script's own; also where both copies hold one."""
    for path, data in modules.items():
        homes = [one for one in workspaces if path.resolve().is_relative_to(one.original)]
        if not homes:
            raise RunError(
                f"{path}: belongs to the conversion, but lies outside of the working folder and of the script's; "
                "start `dp2ddp verify` in a folder that holds both"
            )
        for home in homes:
            (home.folder / path.resolve().relative_to(home.original)).write_bytes(data)


def _run_all(
    subject: Subject, prepared: Sequence[_Prepared], server: Server, see: Callable[[str], None]
) -> list[Run]:
    with ExitStack() as stack:
        runnings = []
        for each in prepared:
            running = _start(subject, each.stage, server, stack)
            stack.callback(running.kill)
            runnings.append(running)
        return watch(runnings, subject.patience, lambda run: _seen(run, see))


def _seen(run: Run, see: Callable[[str], None]) -> None:
    """A run that failed ends the experiment: the others are stopped, whatever they do."""
    stage = run.stage
    if run.failure and (run.failure.kind == "hang" or not run.ended_on_purpose):
        if words := _last_words(run):
            see(words)
        original = ". It is the original that fails, as it is" if stage.mode == "dp" else ""
        raise RunError(failure_text(run) + original)
    devices = f"{stage.world} device{'' if stage.world == 1 else 's'}"
    see(f"{devices}, {stage.mode} in {stage.dtype}: {run.seconds:.1f} s")


def _start(subject: Subject, stage: Stage, server: Server, stack: ExitStack) -> Running:
    if not subject.torchrun or (stage.mode, stage.dtype) != ("ddp", "float64"):
        return server.start(stage)
    Path(stage.desk).mkdir(parents=True, exist_ok=True)
    log = stack.enter_context((Path(stage.desk) / "agent.out").open("w"))
    return Process(stage, environment(), stdout=log, stderr=log)


def _last_words(run: Run) -> str:
    """The traceback of the rank that failed; without the scratch folder, which is gone when it is read."""
    rank = run.failure.rank if run.failure and run.failure.rank is not None else 0
    started_nothing = Path(run.stage.desk) / "agent.out"
    text = run.output(rank, "err").rstrip() or (
        started_nothing.read_text() if started_nothing.exists() else ""
    )
    return text[-4000:].replace(f"{Path(run.stage.script).parent}/", "")


def _own_code(subject: Subject) -> OwnCode:
    """The files that are there before a conversion as well: the helpers' module is not."""
    files = {subject.script: subject.converted, **subject.modules}
    mended = {path.resolve(): data for path, data in subject.mended.items()}
    digests = {
        digest(data): digest(mended[path.resolve()]) if path.resolve() in mended else content_hash(path)
        for path, data in files.items()
        if path.exists()
    }
    return OwnCode(digests, {subject.converted_name: subject.script.name})


def _judge(
    prepared: Sequence[_Prepared], runs: Sequence[Run], server: Server, scratch: Path, code: OwnCode
) -> Verdict:
    reference, other = runs[0], runs[1]
    double = _compare(reference, other, FLOAT64)
    _check_devices(double, reference.stage)
    loose = FLOAT64.with_noise(double.noise, double.noise_floor)
    texts = [
        _spelling(each, prepared[0].stage.name).plain(run.output(0))
        for each, run in zip(prepared[:2], runs[:2], strict=True)
    ]
    return Verdict(
        world=reference.stage.world,
        float64=double,
        float32=_compare(runs[2], runs[3], FLOAT32),
        stdout=compare_text(texts[0], texts[1], loose),
        voices=tuple(rank for rank in other.stage.ranks if rank and other.output(rank)),
        files=_compare_leavings(prepared[0], prepared[1], server, scratch, loose, code),
        codes=(reference.code, other.code),
        seconds=(reference.seconds, other.seconds),
    )


def _check_devices(comparison: Comparison, stage: Stage) -> None:
    """A script that names its devices splits by their number, whatever -n says: other chunks, another training."""
    used = {len(rows) for rows in comparison.rows}
    if len(used) == 1 and used != {stage.world}:
        (count,) = used
        raise RunError(
            f"{stage.name}: DataParallel is given {count} device{'s' if count > 1 else ''} (device_ids), "
            f"so it cannot be compared on {stage.world}; use -n {count}"
        )


def _compare(reference: Run, other: Run, tolerance: Tolerance) -> Comparison:
    folders = [Path(str(run.stage.trace)) for run in (reference, other)]
    ranks = [read_trace(folders[1], rank) for rank in other.stage.ranks]
    return compare(read_trace(folders[0], 0), ranks, tolerance)


def _spelling(prepared: _Prepared, name: str) -> Spelling:
    """The scratch folders and the converted script under their original names."""
    folders = ((str(one.folder), str(one.original)) for one in prepared.workspaces)
    return Spelling((*folders, (Path(prepared.stage.name).name, Path(name).name)))


def _compare_leavings(
    ours: _Prepared,
    theirs: _Prepared,
    server: Server,
    scratch: Path,
    tolerance: Tolerance,
    code: OwnCode,
) -> FilesComparison:
    both = zip(ours.workspaces, theirs.workspaces, strict=True)
    pairs = [(a.left_behind(), b.left_behind()) for a, b in both]
    spellings = _spelling(ours, ours.stage.name), _spelling(theirs, ours.stage.name)
    compared = [compare_files(a, b, tolerance, code, spellings) for a, b in pairs]
    tensors = [
        (path, str(a.folder / path), str(b.folder / other))
        for (a, b), (_, paths) in zip(pairs, compared, strict=True)
        for path, other in paths
    ]
    different = [each for comparison, _ in compared for each in comparison.different]
    different += _compare_tensors(tensors, spellings, server, scratch, tolerance)
    return FilesComparison(sum(comparison.files for comparison, _ in compared), tuple(different))


def _compare_tensors(
    pairs: list[tuple[str, str, str]],
    spellings: Sequence[Spelling],
    server: Server,
    scratch: Path,
    tolerance: Tolerance,
) -> Iterator[FileDifference]:
    """Files that torch wrote and whose bytes differ, compared by a process that has torch."""
    if not pairs:
        return
    answer = scratch / "tensors.json"
    request = {
        "pairs": pairs,
        "spellings": [one.words for one in spellings],
        "allowed": tolerance.allowed,
        "floor": tolerance.floor,
        "answer": str(answer),
    }
    if server.call("dp2ddp.verify.checkpoints:main", request) != 0:
        raise RunError("the files that torch wrote could not be compared; see above")
    found: dict[str, str] = json.loads(answer.read_text(encoding="utf-8"))
    yield from (FileDifference(path, what) for path, what in found.items() if what)
