"""What is known of a DDP run that failed or hangs: how far each rank came, and whether it had parted from
DataParallel's before; and what to do now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dp2ddp.comparison.causes.diagnose import diagnose
from dp2ddp.comparison.causes.evidence import Evidence
from dp2ddp.comparison.compare import compare_known_steps
from dp2ddp.comparison.tolerance import FLOAT32, FLOAT64, HIDING
from dp2ddp.report.facts import difference_text
from dp2ddp.report.failure_text import BeforeFailure
from dp2ddp.runtime.hang.stacks import RankPosition
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.run_folder import read_heartbeats
from dp2ddp.runtime.stage import Stage
from dp2ddp.trace.records import read_trace
from dp2ddp.trial.file_writers import shared_files
from dp2ddp.words import counted, ranks_text

_MOST = 3  # files
_SAME_CALLS = (
    "every rank has to make the same calls in the same order, and backward() of a DDP model is one of them: forward, "
    "backward and step belong on all ranks, each with rows of its own; under `if rank == 0` belongs what prints, logs "
    "and saves, and no more"
)
_ONE_WRITES = (
    "if it was reading that file: save on rank 0 alone, and let no rank read it before dist.barrier(): a rank that "
    "reads what another one writes finds half a file"
)
_OF_CONVERSIONS = "a conversion of ours must not do this: please report it, with this text"


def before_failure(run: Run, reference: Stage | None, port: bool) -> BeforeFailure:
    """For ranks that wait for each other for ever, of which one failed since another was gone, or that write one file.

    `reference`: DataParallel's run in the same precision, over or not.
    """
    failure = run.failure
    several = run.stage.mode == "ddp" and len(run.stage.ranks) > 1
    if failure is None or not several:
        return BeforeFailure()
    if failure.kind == "crash" and not failure.misses_a_rank:
        shared = tuple(shared_files(run.stage))
        advice = _ONE_WRITES if port else _OF_CONVERSIONS
        return BeforeFailure(shared[:_MOST], advice) if shared else BeforeFailure()
    if failure.kind != "hang" and not failure.misses_a_rank:
        return BeforeFailure()
    folder = Path(run.stage.run_folder)
    beats = read_heartbeats(folder) if (folder / "heartbeats").exists() else ()  # nobody counted
    steps = tuple(taken for _, taken in beats)[: run.stage.world]
    lines = [_steps_text(steps)] if steps else []
    lines += list(_parted(run, reference, port)) if reference else []
    return BeforeFailure(tuple(lines), _what_now(steps, port, failure.positions))


def _what_now(steps: Sequence[int], port: bool, positions: Sequence[RankPosition]) -> str:
    inside = next((each for each in positions if each.inside), None)
    if inside:
        return (
            f"rank {inside.rank} is inside {inside.helper} ({inside.inside}), and the others wait until that is over: "
            "what it calls there must not wait for them, and must have an end"
        )
    if not port:
        return _OF_CONVERSIONS
    idle = [rank for rank, taken in enumerate(steps) if not taken]
    if idle and any(steps):
        takes = "takes" if len(idle) == 1 else "take"
        return f"{ranks_text(idle)} {takes} no optimizer step while others do; {_SAME_CALLS}"
    return _SAME_CALLS


def _steps_text(steps: Sequence[int]) -> str:
    if not any(steps):
        return "no rank had taken an optimizer step"
    if len({*steps}) == 1:
        return f"each rank had taken {counted(steps[0], 'optimizer step')}"
    each = ", ".join(f"rank {rank} {taken or 'none'}" for rank, taken in enumerate(steps))
    return f"the ranks had not taken the same optimizer steps: {each}"


def _parted(run: Run, reference: Stage, port: bool) -> Iterator[str]:
    """The first step on record that is not DataParallel's, and the likeliest cause. Nothing where too little is known:
    whatever goes wrong in looking takes nothing from the failure that is told."""
    try:
        expected = read_trace(Path(str(reference.trace)), 0)
        ranks = tuple(read_trace(Path(str(run.stage.trace)), rank) for rank in run.stage.ranks)
        tolerance = FLOAT64 if run.stage.dtype == "float64" else FLOAT32
        comparison = compare_known_steps(expected, ranks, tolerance, port)
        first = comparison.first
        if first is not None and not first.size <= HIDING:
            yield f"that run had parted from DataParallel's already: {difference_text(first)}"
            for cause in diagnose(Evidence(len(ranks), expected, ranks, comparison))[:1]:
                evidence = "; ".join(cause.evidence[:1])
                yield f"its likely cause: {cause.title} [{cause.code}] {evidence}"
    except Exception:  # of a run that was killed, records may be torn
        return
