"""Starts a run of a trial, the judged one as a user will start it, and says how it goes and how it ended.

Of ranks that failed or hang: how far each came, and what to do now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from dp2ddp.comparison.causes.start_signatures import fault_of_original
from dp2ddp.errors import RunError
from dp2ddp.progress import Progress, RunState
from dp2ddp.report.failure_text import (
    BeforeFailure,
    Original,
    failure_document,
    failure_text,
    ran_out_of_space,
)
from dp2ddp.runtime.hang.stacks import RankPosition
from dp2ddp.runtime.process import launch_command
from dp2ddp.runtime.process.run import Look, Process, Run, Running
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.run_folder import read_heartbeats
from dp2ddp.trial.outside import shared_files
from dp2ddp.trial.prepare import Prepared, RunKind
from dp2ddp.trial.subject import HASHES, Subject, chosen_hashes
from dp2ddp.words import counted, ranks_text

_GRACE = 2.0  # seconds


def environment() -> dict[str, str]:
    """The environment of runs that are compared: one thread a process, whatever the user's environment says.

    A verdict is the same on any machine then, and runs that go on at once do not take the processors from each other.
    """
    kept = {name: value for name, value in users_environment().items() if name != "MKL_NUM_THREADS"}
    return {**kept, "OMP_NUM_THREADS": "1"}


def users_environment() -> dict[str, str]:
    """As for any run; strings have the same hashes in the process with DataParallel and on rank 0: the user's, who may
    have asked for some."""
    return {**launch_command.environment(), HASHES: chosen_hashes() or "0"}


def show(looks: Sequence[Look], progress: Progress) -> None:
    """Tell how far the runs are."""
    states = []
    for look in looks:
        stage = look.stage
        dropped = stage.warm_up if stage.timed or stage.counted else 0
        expected = None if stage.steps is None else stage.steps + dropped
        states.append(RunState(stage.words, look.begun, look.ended, look.steps, expected, look.seconds))
    progress.look(states)


class Listener:
    """Gets runs as they end. Of a script that fails by itself the original is reported, not its conversion.

    Both get to the place where they fail at about the same time. So a conversion that crashes gives its original as
    much time again as it had itself.
    """

    def __init__(self, runnings: Sequence[Running], report: Callable[[Run], None]) -> None:
        self._originals = {running.stage.dtype for running in runnings if running.stage.mode == "dp"}
        self._report = report
        self._held: list[tuple[float, Run]] = []  # until when, on time.monotonic()

    def on_end(self, run: Run) -> None:
        """Report a run that has ended, or hold it back until its original has."""
        stage = run.stage
        crashed = run.failure is not None and run.failure.kind == "crash"
        if stage.mode == "ddp" and crashed and stage.dtype in self._originals:
            self._held.append((time.monotonic() + run.seconds + _GRACE, run))
            return
        self._report(run)
        if stage.mode == "dp":
            self._originals.discard(stage.dtype)
            self.on_look()

    def on_look(self) -> None:
        """Report those that have waited long enough, or whose original is over; called many times a second."""
        now, held, self._held = time.monotonic(), self._held, []
        for until, run in held:
            if until <= now or run.stage.dtype not in self._originals:
                self._report(run)
            else:
                self._held.append((until, run))

    def report_all(self) -> None:
        """Report those whose original does not come any more: it was ended to make room, and runs later."""
        self._originals.clear()
        self.on_look()


def raise_or_report(run: Run, progress: Progress, subject: Subject | None = None) -> None:
    """Report a run that ended well in a line; raise RunError for one that failed."""
    stage = run.stage
    if run.failure and (run.failure.kind == "hang" or not run.ended_on_purpose):
        words = last_words(run)
        # a hang's own traceback would stand in front of where ranks wait
        if words and run.failure.kind == "crash":
            progress.say(words)
        about = _about_original(run) if stage.mode == "dp" else ""
        original = _original(subject) if subject and stage.mode == "ddp" else None
        before = before_failure(run, subject.rows_by_rank) if subject else BeforeFailure()
        text = failure_text(run, original, before)
        if about:
            text = text.rstrip(".") + about
        raise RunError(text, failure_document(run, words, original, before))
    progress.say(f"{counted(stage.world, 'device')}, {stage.words}: {run.seconds:.1f} s")


def _original(subject: Subject) -> Original | None:
    """The script that a conversion by us was made of; None for a version of the user's own."""
    version = subject.version
    if version.conversion is None:
        return None
    entry = version.conversion.entry
    same_name = version.name == subject.script.name
    name = "the original" if same_name else subject.script.name
    return Original.of(name, entry.before.text, version.name, entry.after)


def _about_original(run: Run) -> str:
    if ran_out_of_space(run):
        return ""
    if run.failure and run.stage.kept and run.failure.text.startswith("PermissionError"):
        return ". In a copy with links a run may not write into your folder (docs/verify.md, Your folder)"
    fault = fault_of_original(run.failure.text) if run.failure else None
    return f". {fault.title} {fault.advice}" if fault else ". It is the original that fails, as it is"


def start(subject: Subject, prepared: Prepared, server: Server, stack: ExitStack) -> Running:
    """Start a run: the judged one, and one that is timed, as a user will, in processes that import torch."""
    stage = prepared.stage
    if not (stage.timed or is_torchrun(subject, prepared.kind)):
        return server.start(stage)
    Path(stage.run_folder).mkdir(parents=True, exist_ok=True)
    log = stack.enter_context((Path(stage.run_folder) / "agent.out").open("w"))  # what torchrun says
    variables = users_environment() if stage.timed else environment()
    return Process(stage, variables, stdout=log, stderr=log)


def is_torchrun(subject: Subject, kind: RunKind) -> bool:
    """Whether a run is the judged one, and is started as a user will."""
    judged = RunKind("ddp", "float64", aligned=subject.options.aligned)
    return subject.torchrun and replace(kind, again=0) == judged


def last_words(run: Run) -> str:
    """The traceback of the rank that failed; without the scratch folder, which is gone when it is read."""
    rank = run.failure.rank if run.failure and run.failure.rank is not None else 0
    started_nothing = Path(run.stage.run_folder) / "agent.out"
    text = run.output(rank, "err").rstrip() or (
        started_nothing.read_text() if started_nothing.exists() else ""
    )
    return text[-4000:].replace(f"{Path(run.stage.script).parent}/", "")


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
