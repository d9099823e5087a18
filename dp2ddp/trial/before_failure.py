"""What is known of a DDP run that failed or hangs: how far each rank came, and what to do now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dp2ddp.report.failure_text import BeforeFailure
from dp2ddp.runtime.hang.stacks import RankPosition
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.run_folder import read_heartbeats
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


def before_failure(run: Run, port: bool) -> BeforeFailure:
    """For ranks that wait for each other for ever, of which one failed since another was gone, or that write one
    file."""
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
    lines = (_steps_text(steps),) if steps else ()
    return BeforeFailure(lines, _what_now(steps, port, failure.positions))


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
