"""Starts the runs of a trial, the judged one as a user will start it, and watches them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from dp2ddp.errors import RunError
from dp2ddp.report.run import Original, failure_document, failure_text
from dp2ddp.runtime import launch
from dp2ddp.runtime.run import Process, Run, Running, watch
from dp2ddp.runtime.server import Server
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.prepare import Prepared
from dp2ddp.trial.subject import Subject
from dp2ddp.verify.causes.data_parallel import fault_of_original

_LOOK, _GRACE = 0.05, 2.0  # seconds


def environment() -> dict[str, str]:
    """As for any run; strings have the same hashes in the process with DataParallel and on rank 0."""
    return {**launch.environment(), "PYTHONHASHSEED": "0"}


def run_all(
    subject: Subject, prepared: Sequence[Prepared], server: Server, see: Callable[[str], None]
) -> list[Run]:
    with ExitStack() as stack:
        runnings = []
        for each in prepared:
            running = _start(subject, each.stage, server, stack)
            stack.callback(running.kill)
            runnings.append(running)
        listener = Listener(runnings, lambda run: tell(run, see, subject))
        return watch(runnings, subject.patience, listener.hear)


class Listener:
    """Hears of runs that are over. Of a script that fails by itself the original is told about, not its conversion.

    Both get to the place where they fail at about the same time. So a conversion that crashes gives its original as
    much time again as it had itself.
    """

    def __init__(self, runnings: Sequence[Running], tell: Callable[[Run], None]) -> None:
        self._originals = {one.stage.dtype: one for one in runnings if one.stage.mode == "dp"}
        self._tell = tell
        self._heard: set[str] = set()  # precisions in which the original is over
        self._held: list[Run] = []

    def hear(self, run: Run) -> None:
        if run.stage.mode == "ddp" and run.failure and run.failure.kind == "crash" and self._soon_over(run):
            self._held.append(run)
            return
        self._tell(run)
        if run.stage.mode == "dp":
            self._heard.add(run.stage.dtype)
        for held in [one for one in self._held if one.stage.dtype in self._heard]:
            self._tell(held)

    def _soon_over(self, run: Run) -> bool:
        """Whether the original, which nothing was told about, ends soon after its conversion."""
        original = self._originals.get(run.stage.dtype)
        if original is None or run.stage.dtype in self._heard:
            return False
        latest = time.monotonic() + run.seconds + _GRACE
        while original.codes() is None and time.monotonic() < latest:
            time.sleep(_LOOK)
        return original.codes() is not None


def tell(run: Run, see: Callable[[str], None], subject: Subject | None = None) -> None:
    """A run that failed ends the experiment: the others are stopped, whatever they do."""
    stage = run.stage
    if run.failure and (run.failure.kind == "hang" or not run.ended_on_purpose):
        words = _last_words(run)
        if (
            words and run.failure.kind == "crash"
        ):  # a hang's own traceback would stand in front of where ranks wait
            see(words)
        about = _about_original(run) if stage.mode == "dp" else ""
        original = _original(subject) if subject and stage.mode == "ddp" else None
        told = failure_text(run, original)
        if about:
            told = told.rstrip(".") + about
        raise RunError(told, failure_document(run, words, original))
    devices = f"{stage.world} device{'' if stage.world == 1 else 's'}"
    again = ", moved by an ulp" * stage.nudged + ", random numbers aligned" * bool(stage.aligned)
    again += ", in lockstep" * bool(stage.lockstep)
    see(f"{devices}, {stage.mode} in {stage.dtype}{again}: {run.seconds:.1f} s")


def _original(subject: Subject) -> Original | None:
    """Of a conversion of ours: the script that it was made of."""
    if subject.conversion is None:
        return None
    entry = subject.conversion.entry
    same_name = subject.converted_name == subject.script.name
    name = "the original" if same_name else subject.script.name
    return Original.of(name, entry.before.text, subject.converted_name, entry.after)


def _about_original(run: Run) -> str:
    fault = fault_of_original(run.failure.text) if run.failure else None
    return f". {fault.title} {fault.advice}" if fault else ". It is the original that fails, as it is"


def _start(subject: Subject, stage: Stage, server: Server, stack: ExitStack) -> Running:
    if not subject.torchrun or not _is_judged(subject, stage):
        return server.start(stage)
    Path(stage.desk).mkdir(parents=True, exist_ok=True)
    log = stack.enter_context((Path(stage.desk) / "agent.out").open("w"))
    return Process(stage, environment(), stdout=log, stderr=log)


def _is_judged(subject: Subject, stage: Stage) -> bool:
    kind = (stage.mode, stage.dtype, bool(stage.aligned), bool(stage.lockstep))
    return kind == ("ddp", "float64", subject.aligned, False)


def _last_words(run: Run) -> str:
    """The traceback of the rank that failed; without the scratch folder, which is gone when it is read."""
    rank = run.failure.rank if run.failure and run.failure.rank is not None else 0
    started_nothing = Path(run.stage.desk) / "agent.out"
    text = run.output(rank, "err").rstrip() or (
        started_nothing.read_text() if started_nothing.exists() else ""
    )
    return text[-4000:].replace(f"{Path(run.stage.script).parent}/", "")
