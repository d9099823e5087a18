"""All that `dp2ddp bench` runs: short runs that compare and count, then timed runs, one after the other.

short    both versions compared, step by step (trial.py), on virtual devices     is it the same training?
counting DataParallel, DDP                                                      what does a step send and hold?
timed    DataParallel, DDP; and once more, `rounds` times                        what does a step take?

Nothing is recorded or counted in a timed run, and nothing else runs beside it. The modes alternate, so that a machine
that grows slower or faster meets both.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.costs.figures import (
    NAMES,
    Benchmark,
    Counted,
    Measured,
    Mode,
    Reading,
    Sameness,
    Setting,
    Timed,
    figures,
    read,
    spread,
    with_rows_of,
)
from dp2ddp.errors import RunError
from dp2ddp.options import BenchOptions
from dp2ddp.progress import Progress, RunState
from dp2ddp.report.comparison import Report, headline
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.process.scratch import scratch_folder
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.all_trials import how_it_ended, surroundings_of
from dp2ddp.trial.launches import run_with_advice
from dp2ddp.trial.prepare import RunKind, full_disk_is_said, prepare
from dp2ddp.trial.rounds import run_at_once
from dp2ddp.trial.runs import environment
from dp2ddp.trial.subject import Subject, subject_of
from dp2ddp.trial.trial import MODES
from dp2ddp.words import counted

COUNTED, BEFORE_COUNTED = 4, 2  # steps; DDP lays its buckets anew at the beginning of its second one
_NO_STEP = "it takes no optimizer step, so there is none to measure"


def bench(options: BenchOptions) -> tuple[Benchmark, RunError | None]:
    """What was found, and why it was not more: either version cannot run, or takes too few steps."""
    started, progress = time.monotonic(), options.progress
    with scratch_folder() as scratch, Server(environment()) as server:
        progress.begin(f"reading {options.script}")
        subject = subject_of(options.comparison)
        worlds = subject.worlds
        progress.say(runs_to_make(worlds, options))
        bencher = _Bencher(options, server, scratch, progress)
        remarks = tuple(_busy())
        measured: list[Measured] = []
        failure = None
        for world in worlds:
            try:
                measured.append(bencher.measure(subject, world))
            except RunError as error:
                failure = error
                break
    known = {**surroundings_of(subject)}
    if measured and not all(each.dp.virtual for each in measured):
        known["devices"] = "CUDA where times are measured, virtual where both versions are compared"
    found_all = Benchmark(
        script=str(options.script),
        port=str(subject.port or ""),
        launch=subject.version.launch,
        convert=subject.convert,
        setting=Setting(options.warm_up, options.steps, options.rounds, os.cpu_count() or 1),
        measured=tuple(measured),
        seconds=time.monotonic() - started,
        remarks=remarks,
        surroundings=known,
        failure=str(failure or ""),
    )
    return found_all, failure


def runs_to_make(worlds: Sequence[int], options: BenchOptions) -> str:
    """How many runs come, in words."""
    compared, counts = len(worlds) * bool(options.compared), 2 * len(worlds)
    timed = options.rounds * 2 * len(worlds)
    comparisons = f"{counted(compared, 'comparison')} of {options.compared} steps, " * bool(compared)
    count = compared + counts + timed
    return f"{count} runs, one after the other: {comparisons}{counts} that count, {timed} that are timed"


class _Looks(Progress):
    """Tells how far runs are, and not that they end: they are no result of their own."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def look(self, runs: Sequence[RunState]) -> None:
        self._progress.look(runs)


@dataclass
class _Bencher:
    """Measures one script."""

    options: BenchOptions
    server: Server
    scratch: Path
    progress: Progress
    _rooms: int = 0

    def measure(self, subject: Subject, world: int) -> Measured:
        """What was found on one number of devices."""
        sameness = self._compare(subject, world)
        counts = {mode: self._count(subject, mode, world) for mode in MODES}
        rounds: dict[Mode, list[tuple[Timed, ...]]] = {"dp": [], "ddp": []}
        for number in range(self.options.rounds):
            for mode in MODES:
                rounds[mode].append(self._time(subject, mode, world, number))
        dp, ddp = (figures(mode, world, rounds[mode], counts[mode]) for mode in MODES)
        ddp = with_rows_of(dp, ddp)
        return Measured(world, dp, ddp, sameness)

    # ---- is it the same training?

    def _compare(self, subject: Subject, world: int) -> Sameness:
        steps = self.options.compared
        if not steps:
            return Sameness("not verified")
        self.progress.begin(f"{counted(world, 'device')}: comparing {steps} steps of both")
        scratch = self.scratch / "compared"
        verdict = run_with_advice(subject, world, self.server, scratch, _Looks(self.progress))
        shutil.rmtree(scratch, ignore_errors=True)
        if not verdict.float64.stepped or (verdict.codes[0] and not verdict.float64.steps):
            raise RunError(f"{subject.name}: {_NO_STEP}{how_it_ended(verdict)}")
        sameness = _sameness(subject, verdict)
        self.progress.say(f"{counted(world, 'device')}: {sameness.words}")
        return sameness

    # ---- runs

    def _count(self, subject: Subject, mode: Mode, world: int) -> tuple[Counted, ...]:
        self.progress.begin(f"{counted(world, 'device')}, {NAMES[mode]}: counting")
        warm_up = min(BEFORE_COUNTED, self.options.warm_up)
        _, counts = self._measured(subject, mode, world, Counted, warm_up, COUNTED)
        self.progress.say(f"{counted(world, 'device')}, {NAMES[mode]}: counted")
        return counts

    def _time(self, subject: Subject, mode: Mode, world: int, number: int) -> tuple[Timed, ...]:
        which = f"{counted(world, 'device')}, {NAMES[mode]}, round {number + 1} of {self.options.rounds}"
        self.progress.begin(f"{which}: timing")
        warm_up = self.options.warm_up
        run, timed = self._measured(subject, mode, world, Timed, warm_up, self.options.steps - warm_up)
        if any(not reading.seconds for reading in timed):
            taken = counted(min(reading.steps for reading in timed), "optimizer step")
            raise RunError(
                f"{run.stage.name}: {_where(run)} it takes {taken}, and the first {warm_up} are dropped; "
                "lower --warm-up, or give it more to train on"
            )
        median = spread(timed[0].seconds).median
        self.progress.say(f"{which}: {len(timed[0].seconds)} steps, {1000 * median:.1f} ms each")
        return timed

    def _measured(
        self, subject: Subject, mode: Mode, world: int, kind: type[Reading], warm_up: int, steps: int
    ) -> tuple[Run, tuple[Reading, ...]]:
        """A run with copies of its own, and what each of its processes measured."""
        self._rooms += 1
        room, readings = (self.scratch / f"{name}{self._rooms}" for name in ("run", "readings"))
        with full_disk_is_said():
            prepared = prepare(subject, RunKind(mode, "float32"), world, room)
        stage = replace(
            prepared.stage,
            trace=None,
            rank_order=False,
            sample_streams=False,
            timed=str(readings) if kind is Timed else None,
            counted=str(readings) if kind is Counted else None,
            warm_up=warm_up,
            steps=steps,
            real=not self.options.virtual,
        )
        with closing(prepared.copies):
            ready = replace(prepared, stage=stage)
            (run,), _ = run_at_once(subject, [ready], self.server, _Looks(self.progress))
        measured = read(readings, stage.ranks, kind)
        self._check(run, room, [reading.steps for reading in measured])
        return run, measured

    def _check(self, run: Run, room: Path, steps: Sequence[int]) -> None:
        """RunError where a rank left no reading, or took no step; then the copies go."""
        name = run.stage.name
        shutil.rmtree(room, ignore_errors=True)
        if len(steps) < len(run.stage.ranks):
            raise RunError(
                f"{name}: {_where(run)} nothing was measured: a rank ended in another program, or could not write what "
                "it measured (is the disk full?)"
            )
        if not all(steps):
            raise RunError(f"{name}: {_where(run)} {_NO_STEP}")


def _busy() -> Iterator[str]:
    """Whether something else runs here already: then no time is worth much."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.5 * processors:
        yield (
            f"The machine was busy when this began (load {load:.1f} on {processors} processors): times vary; "
            "counts, bytes and processor time can be trusted."
        )


def _where(run: Run) -> str:
    return f"in {run.stage.mode} mode on {counted(run.stage.world, 'device')}"


def _sameness(subject: Subject, verdict: Verdict) -> Sameness:
    steps = verdict.float64.steps
    if not steps:
        return Sameness("not verified")
    if verdict.same:
        return Sameness("same", steps)
    report = Report(
        str(subject.script), (verdict,), subject.version.launch, 0.0, port=str(subject.port or "")
    )
    return Sameness(
        "same" if verdict.trains_the_same else "different", steps, headline(report).partition(" ")[2]
    )
