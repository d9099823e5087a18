"""All that `dp2ddp bench` runs: short runs that compare and count, then timed runs, one after the other.

short    both versions compared, step by step (trial.py), on virtual devices     is it the same training?
counting DataParallel, DDP                                                      what does a step move, send and hold?
timed    one device, DataParallel, DDP; and once more, `rounds` times            what does a step take?

Nothing is recorded or counted in a timed run, and nothing else runs beside it. The modes alternate, so that a machine
that grows slower or faster meets both.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from dp2ddp.bench.figures import Figures, Mode, figures, spread, with_rows_of
from dp2ddp.bench.readings import Counted, Timed, read_counted, read_timed
from dp2ddp.bench.result import Benchmark, Measured, Sameness, Setting
from dp2ddp.errors import RunError
from dp2ddp.report.comparison import Report, headline
from dp2ddp.runtime.run import Process, Run, watch
from dp2ddp.runtime.server import Server
from dp2ddp.trial.launches import try_as_asked
from dp2ddp.trial.prepare import Kind, Prepared, prepare
from dp2ddp.trial.runs import environment, tell
from dp2ddp.trial.subject import Subject, subject_of
from dp2ddp.trial.told import surroundings_of
from dp2ddp.trial.wanted import Wanted
from dp2ddp.trial.whole import silent
from dp2ddp.verify.verdict import Verdict

COUNTED, BEFORE_COUNTED = 4, 2  # steps; DDP lays its buckets anew at the beginning of its second one
_NO_STEP = "it takes no optimizer step, so there is none to measure"
_MODES: tuple[Mode, Mode] = ("dp", "ddp")
_WORDS = {"dp": "DataParallel", "ddp": "DDP"}


@dataclass(frozen=True)
class Timing:
    """What somebody asks to be measured; ValueError if it cannot be."""

    wanted: Wanted
    warm_up: int = 5
    steps: int = 25
    rounds: int = 2
    compared: int = 4  # steps, beside the speed; 0: none
    virtual: bool = False  # also where there are real devices

    def __post_init__(self) -> None:
        if self.steps <= self.warm_up:
            raise ValueError(
                f"--steps {self.steps} leaves none to measure: the first {self.warm_up} are dropped (--warm-up)"
            )


def bench(
    timing: Timing, see: Callable[[str], None] = silent, warn: Callable[[str], None] = silent
) -> tuple[Benchmark, RunError | None]:
    """What was found, and why it was not more: either version cannot run, or takes too few steps."""
    started = time.monotonic()
    wanted = timing.wanted
    with Server(environment()) as server, tempfile.TemporaryDirectory(prefix="dp2ddp-") as scratch:
        subject = subject_of(wanted, warn)
        bencher = _Bencher(timing, server, Path(scratch).resolve(), see)
        bencher.remarks.extend(_busy())
        measured: list[Measured] = []
        failure = None
        for world in wanted.devices or (subject.world or 2,):
            try:
                subject, found = bencher.measure(subject, world)
            except RunError as error:
                failure = error
                break
            measured.append(found)
    found_all = Benchmark(
        script=str(wanted.script),
        port=str(subject.port or ""),
        launch=subject.launch,
        convert=subject.convert,
        setting=Setting(timing.warm_up, timing.steps, timing.rounds, os.cpu_count() or 1),
        measured=tuple(measured),
        seconds=time.monotonic() - started,
        remarks=tuple(bencher.remarks),
        surroundings=_surroundings(subject, measured),
        failure=str(failure or ""),
    )
    return found_all, failure


def _surroundings(subject: Subject, measured: Sequence[Measured]) -> tuple[tuple[str, str], ...]:
    known = dict(surroundings_of(subject))
    if measured and not all(one.dp.virtual for one in measured):
        known["devices"] = "CUDA where times are measured, virtual where both versions are compared"
    return tuple(known.items())


@dataclass
class _Bencher:
    """Measures one script; keeps what was found on one device, which all numbers of devices are held against."""

    timing: Timing
    server: Server
    scratch: Path
    see: Callable[[str], None]
    one: Figures | None = None
    remarks: list[str] = field(default_factory=list)
    _looked_at_one: bool = False
    _fails_alone: bool = False
    _rooms: int = 0

    def measure(self, subject: Subject, world: int) -> tuple[Subject, Measured]:
        """The subject as it has to be started, which its first runs show, and what was found."""
        subject, sameness = self._compare(subject, world)
        counted = {mode: self._count(subject, mode, world) for mode in _MODES}
        rounds: dict[Mode, list[tuple[Timed, ...]]] = {"dp": [], "ddp": []}
        alone: list[tuple[Timed, ...]] = []
        ask_one = not self._looked_at_one and world != 1
        for number in range(self.timing.rounds):
            if ask_one and (found := self._time_alone(subject, number)):
                alone.append(found)
            for mode in _MODES:
                rounds[mode].append(self._time(subject, mode, world, number))
        self._looked_at_one = True
        dp, ddp = (figures(mode, world, rounds[mode], counted[mode]) for mode in _MODES)
        ddp = with_rows_of(dp, ddp)
        if world == 1:
            self.one = self.one or dp
        elif alone:
            self.one = figures("dp", 1, alone)
        return subject, Measured(world, dp, ddp, sameness, self.one)

    # ---- is it the same training?

    def _compare(self, subject: Subject, world: int) -> tuple[Subject, Sameness]:
        steps = self.timing.compared
        if not steps:
            return subject, Sameness("not verified")
        comparing = replace(subject, steps=steps)
        asked, verdict = try_as_asked(comparing, world, self.server, self.scratch / "compared", silent)
        shutil.rmtree(self.scratch / "compared", ignore_errors=True)
        if not verdict.float64.stepped:
            raise RunError(f"{subject.name}: {_NO_STEP}")
        sameness = _sameness(subject, verdict)
        self.see(f"{_devices(world)}: {sameness.words}")
        return replace(asked, steps=subject.steps), sameness

    # ---- runs

    def _count(self, subject: Subject, mode: Mode, world: int) -> tuple[Counted, ...]:
        room, readings = self._room(), self._folder()
        prepared = self._prepared(subject, mode, world, room)
        stage = replace(
            prepared.stage,
            counted=str(readings),
            warm_up=min(BEFORE_COUNTED, self.timing.warm_up),
            steps=COUNTED,
            real=not self.timing.virtual,
        )
        with ExitStack() as stack:
            running = self.server.start(stage)
            stack.callback(running.kill)
            run = watch([running], subject.patience, lambda run: tell(run, silent, subject))[0]
        found = read_counted(readings, stage.ranks)
        shutil.rmtree(room, ignore_errors=True)
        self._check_steps(subject, run, [one.steps for one in found])
        self.see(f"{_devices(world)}, {_WORDS[mode]}: counted")
        return found

    def _time(self, subject: Subject, mode: Mode, world: int, number: int) -> tuple[Timed, ...]:
        found = self._timed(subject, mode, world)
        told = spread(found[0].seconds).median
        self.see(
            f"{_devices(world)}, {_WORDS[mode]}, round {number + 1} of {self.timing.rounds}: "
            f"{len(found[0].seconds)} steps, {1000 * told:.1f} ms each"
        )
        return found

    def _time_alone(self, subject: Subject, number: int) -> tuple[Timed, ...] | None:
        """On one device, where the script can: one that names its devices cannot."""
        if self._fails_alone:
            return None
        try:
            return self._time(subject, "dp", 1, number)
        except RunError as error:
            first = str(error).splitlines()[0]
            self._fails_alone = True
            self.remarks.append(f"No figures of one device, where it does not run: {first}")
            return None

    def _timed(self, subject: Subject, mode: Mode, world: int) -> tuple[Timed, ...]:
        room, readings = self._room(), self._folder()
        prepared = self._prepared(subject, mode, world, room)
        stage = replace(
            prepared.stage,
            timed=str(readings),
            warm_up=self.timing.warm_up,
            steps=self.timing.steps - self.timing.warm_up,
            real=not self.timing.virtual,
        )
        Path(stage.desk).mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            log = stack.enter_context((Path(stage.desk) / "agent.out").open("w"))
            running = Process(stage, environment(), stdout=log, stderr=log)
            stack.callback(running.kill)
            run = watch([running], subject.patience, lambda run: tell(run, silent, subject))[0]
        found = read_timed(readings, stage.ranks)
        shutil.rmtree(room, ignore_errors=True)
        self._check_steps(subject, run, [one.steps for one in found])
        if any(not one.seconds for one in found):
            raise RunError(self._too_few(subject, run, found))
        return found

    def _prepared(self, subject: Subject, mode: Mode, world: int, room: Path) -> Prepared:
        plain = replace(subject, sample_streams=False)
        prepared = prepare(plain, Kind(mode, "float32"), world, room)
        return replace(prepared, stage=replace(prepared.stage, trace=None, rank_order=False))

    def _room(self) -> Path:
        """A new folder for a run."""
        self._rooms += 1
        return self.scratch / f"run{self._rooms}"

    def _folder(self) -> Path:
        """For its readings."""
        return self.scratch / f"readings{self._rooms}"

    def _check_steps(self, subject: Subject, run: Run, steps: Sequence[int]) -> None:
        name = run.stage.name
        if len(steps) < len(run.stage.ranks):
            raise RunError(f"{name}: {_where(run)} nothing was measured, as it ended in another program")
        if not all(steps):
            raise RunError(f"{name}: {_where(run)} {_NO_STEP}")

    def _too_few(self, subject: Subject, run: Run, found: Sequence[Timed]) -> str:
        taken = min(one.steps for one in found)
        return (
            f"{run.stage.name}: {_where(run)} it takes {taken} optimizer step{'' if taken == 1 else 's'}, and the "
            f"first {self.timing.warm_up} are dropped; lower --warm-up, or give it more to train on"
        )


def _busy() -> Iterator[str]:
    """Whether something else runs here already: then no time is worth much."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.5 * processors:
        yield (
            f"The machine was busy when this began (load {load:.1f} on {processors} processors): times vary; "
            "counts, bytes and processor time can be trusted."
        )


def _where(run: Run) -> str:
    return f"in {run.stage.mode} mode on {_devices(run.stage.world)}"


def _devices(world: int) -> str:
    return f"{world} device{'' if world == 1 else 's'}"


def _sameness(subject: Subject, verdict: Verdict) -> Sameness:
    steps = verdict.float64.steps
    if not steps:
        return Sameness("not verified")
    if verdict.same:
        return Sameness("same", steps)
    trains_the_same = verdict.float64.same and not verdict.single_only and not verdict.hidden
    told = Report(str(subject.script), (verdict,), subject.launch, 0.0, port=str(subject.port or ""))
    return Sameness("same" if trains_the_same else "different", steps, headline(told).partition(" ")[2])
