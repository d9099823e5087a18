"""Run a stage and watch it: the parent's side, without torch.

process = Process(stage)            one python, or torchrun
forked = Server().start(stage)      children of a process that has torch imported already
runs = watch([process, forked], patience=60)
"""

from __future__ import annotations

import contextlib
import math
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from dp2ddp.runtime import launch
from dp2ddp.runtime.calls import parting, read_calls
from dp2ddp.runtime.desk import LAUNCHER, Note, prepare_desk, read_note, read_pulses, say_asked
from dp2ddp.runtime.overlay import write_overlay
from dp2ddp.runtime.processes import kill_tree
from dp2ddp.runtime.stacks import Stand
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.runtime.whereabouts import ask_where, ended_stands, told
from dp2ddp.runtime.writes import read_writes

_LOOK = 0.02  # seconds between two looks
_START = 60.0  # seconds more until all ranks have begun: torch is being imported
_END = 10.0  # seconds more once the script is over on all ranks: the interpreter ends
_GRACE = 5.0  # seconds that ranks have to end after one has failed; torchrun does not give more


@dataclass(frozen=True)
class Failure:
    """Why a run is not whole."""

    kind: str  # crash, hang, writes
    rank: int | None
    text: str
    stands: tuple[Stand, ...] = ()
    parting: str = ""  # the first collective that not all ranks call


@dataclass(frozen=True)
class Run:
    """A run that is over. A code is None for a rank that was ended from outside."""

    stage: Stage
    codes: tuple[int | None, ...]
    seconds: float
    failure: Failure | None

    @property
    def code(self) -> int:
        """As seen from outside: that of the first rank with one other than 0."""
        return next((code for code in self.codes if code), 0 if None not in self.codes else 1)

    @property
    def ended_on_purpose(self) -> bool:
        """No failure, or one that the script asked for: sys.exit with a code."""
        if self.failure is None:
            return True
        notes = [note for rank in self.stage.ranks if (note := read_note(Path(self.stage.desk), rank))]
        asked = any(note.code == self.code and not note.error for note in notes)
        return self.failure.kind == "crash" and asked and not any(note.error for note in notes)

    def output(self, rank: int, ending: str = "out") -> str:
        path = Path(self.stage.desk) / f"rank{rank}.{ending}"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class Running(Protocol):
    """A run under way."""

    stage: Stage
    started: float

    def codes(self) -> tuple[int | None, ...] | None:
        """None while it runs."""

    def kill(self) -> None:
        """End it and everything it started."""


class Process:
    """A run in a process of its own: python for dp, torchrun for ddp."""

    def __init__(self, stage: Stage, environment: dict[str, str] | None = None, **streams: Any) -> None:
        self.stage = stage
        stage_file = prepare_desk(stage)
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            launch.command(stage, stage_file),
            cwd=stage.folder,
            env=environment or launch.environment(),
            start_new_session=True,  # Ctrl-C comes to us alone, and we pass it on
            **{"stdin": subprocess.DEVNULL, **streams},
        )

    def codes(self) -> tuple[int | None, ...] | None:
        code = self._process.poll()
        if code is None:
            return None
        if self.stage.mode == "dp":
            return (code,)
        return rank_codes(self.stage, code)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def wait(self, seconds: float) -> None:
        self._process.wait(seconds)

    def kill(self) -> None:
        if self._process.poll() is None:
            kill_tree(self._process.pid)
        self._process.wait()


def watch(
    runnings: Sequence[Running], patience: float | None, see: Callable[[Run], None] = lambda run: None
) -> list[Run]:
    """Wait until all are over; a run in which no rank moves for `patience` seconds is ended and told about."""
    watched = [_Watched(running) for running in runnings]
    while pending := [each for each in watched if each.run is None]:
        for each in pending:
            each.look(patience)
            if each.run is not None:
                see(each.run)
        time.sleep(_LOOK)
    return [each.run for each in watched if each.run is not None]


class _Watched:
    """A run with the last time that it moved."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._pulses: tuple[int, ...] = ()
        self._moved = time.monotonic()
        self._stands: tuple[Stand, ...] = ()  # when the first rank failed
        self.run: Run | None = None

    def look(self, patience: float | None) -> None:
        codes = self._running.codes()
        if codes is not None:
            self.run = self._over(codes, _crash(self._running.stage, codes, self._stands))
            return
        pulses = read_pulses(Path(self._running.stage.desk))
        if pulses != self._pulses:
            self._pulses, self._moved = pulses, time.monotonic()
            if not self._stands and some_failed(self._running.stage):
                self._stands = ask_where(self._running.stage)
                say_asked(Path(self._running.stage.desk))
        if patience is not None and time.monotonic() - self._moved > patience + self._allowance(pulses):
            failure = self._given_up(patience)
            self._running.kill()
            self.run = self._over(rank_codes(self._running.stage, None), failure)

    def _given_up(self, patience: float) -> Failure:
        """A rank that waits for one which has failed is no hang."""
        stage = self._running.stage
        if some_failed(stage):
            crash = _crash(stage, rank_codes(stage, None), self._stands or ask_where(stage))
            if crash:
                return crash
        return _hang(stage, patience)

    def _allowance(self, pulses: tuple[int, ...]) -> float:
        """Seconds more where no script is expected to move."""
        if not all(pulses):
            return _START
        desk = Path(self._running.stage.desk)
        notes = (read_note(desk, rank) for rank in self._running.stage.ranks)
        return _END if all(note and note.code is not None for note in notes) else 0.0

    def _over(self, codes: tuple[int | None, ...], failure: Failure | None) -> Run:
        return Run(self._running.stage, codes, time.monotonic() - self._running.started, failure)


def rank_codes(stage: Stage, code: int | None) -> tuple[int | None, ...]:
    """What each rank says; what one says that died without a last word, torchrun knows."""
    notes = [read_note(Path(stage.desk), rank) for rank in stage.ranks]
    codes = tuple(note.code if note else None for note in notes)
    if code is None:
        return codes
    if code == 0 and not stage.starts_ranks:  # torchrun's 0 is that of all its ranks
        return tuple(each or 0 for each in codes)
    if not code:
        return codes
    told = _told_by_torchrun(Path(stage.desk))
    if all(each == 0 for each in codes):
        return (next(iter(told.values()), code),) * len(codes)
    return tuple(told.get(rank) if each is None else each for rank, each in enumerate(codes))


def _told_by_torchrun(desk: Path) -> dict[int, int]:
    """The exit codes of ranks that failed."""
    log = desk / "torchrun.err"
    text = log.read_text(errors="replace") if log.exists() else ""
    found = re.findall(r"rank\s*:\s*(\d+) \(local_rank.*\n\s*exitcode\s*:\s*(-?\d+)", text)
    return {int(rank): int(code) for rank, code in found}


def some_failed(stage: Stage) -> bool:
    notes = (read_note(Path(stage.desk), rank) for rank in stage.ranks)
    return len(stage.ranks) > 1 and any(note and note.code and note.error for note in notes)


def _crash(stage: Stage, codes: tuple[int | None, ...], stands: tuple[Stand, ...] = ()) -> Failure | None:
    if all(code == 0 for code in codes):
        return None
    notes = {rank: read_note(Path(stage.desk), rank) for rank in stage.ranks}
    if stage.starts_ranks and (missing := [rank for rank in stage.ranks if notes[rank] is None]):
        return _never_joined(stage, missing)
    failed = [rank for rank, code in zip(stage.ranks, codes, strict=True) if code]
    first = min(failed, key=lambda rank: _when(codes[rank], notes[rank]), default=None)
    note = notes.get(first) if first is not None else None
    code = codes[first] if first is not None else None
    text = told(note.error) if note and note.error else _code_in_words(code)
    known = {stand.rank: stand for stand in (*ended_stands(stage), *stands)}
    others = tuple(stand for rank, stand in sorted(known.items()) if rank != first)
    everyone = (*_failed(stage, first, text, note), *others)
    return Failure("crash", first, text, everyone, where_they_part(stage))


def _when(code: int | None, note: Note | None) -> float:
    """The others fail a moment later, because the first one is gone; one that was killed leaves no word."""
    if code in _KILLS and not (note and note.error):
        return 0.0
    return note.ended if note else math.inf


_KILLS = {-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE}


def _failed(stage: Stage, rank: int | None, text: str, note: Note | None) -> tuple[Stand, ...]:
    """Of the rank that failed first; nothing to be said beside it where there is no other."""
    if rank is None or len(stage.ranks) == 1:
        return ()
    place = f" at {note.place}" if note and note.place else ""
    return (Stand(rank, ended=f"failed{place}: {text}"),)


def _code_in_words(code: int | None) -> str:
    if code is None:
        return "ended from outside"
    if code == -signal.SIGKILL:
        return "ended by signal SIGKILL (out of memory?)"
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _hang(stage: Stage, patience: float) -> Failure:
    stands = ask_where(stage)
    waiting = [stand for stand in stands if stand.collective]
    free = [stand.rank for stand in stands if not stand.collective]
    rank = free[0] if len(free) == 1 and waiting else None
    text = f"nothing moved for {patience:g} seconds"
    return Failure("hang", rank, text, stands, where_they_part(stage))


def where_they_part(stage: Stage) -> str:
    return parting({rank: read_calls(Path(stage.desk), rank) for rank in stage.ranks})


def _never_joined(stage: Stage, missing: Sequence[int]) -> Failure:
    launcher = read_note(Path(stage.desk), LAUNCHER)
    if launcher and launcher.error:
        return Failure("crash", None, launcher.error)
    count = stage.world - len(missing)
    return Failure(
        "crash", None, f"{count} of {stage.world} ranks called init_process_group; it was started with python, "
        "as it looks like a script that starts its ranks itself: --launcher torchrun starts them for it"
    )  # fmt: skip


def run_here(
    script: Path, name: str, mode: Mode, world: int, arguments: Sequence[str] = (), *,
    module: str | None = None, replaced: Mapping[Path, bytes] | None = None, settings: Mapping[str, str] | None = None,
    folder: Path | None = None, trace: Path | None = None, steps: int | None = None, patience: float | None = None,
    real: bool = True,
) -> Run:  # fmt: skip
    """Run a script in a folder (the current one), with our own stdin, stdout and stderr.

    `replaced` are the files that run in other words; `settings` are environment variables on top of the user's.
    """
    with tempfile.TemporaryDirectory(prefix="dp2ddp-") as desk:
        stage = Stage(
            script=str(script.absolute()),
            mode=mode,
            world=world,
            folder=str(folder or Path.cwd()),
            desk=desk,
            name=name,
            module=module,
            arguments=tuple(arguments),
            replaced=write_overlay(Path(desk) / "overlay", (replaced or {}).items()),
            trace=str(trace.absolute()) if trace else None,
            steps=steps,
            real=real,
        )
        if sys.stdout is not None:  # closed
            sys.stdout.flush()
        process = Process(
            stage,
            {**launch.environment(), **(settings or {})},
            stdin=None if sys.stdin else subprocess.DEVNULL,
        )
        with _passing_interrupts_on(process):
            return _with_writes(watch([process], patience)[0])


def _with_writes(run: Run) -> Run:
    """A run that ended well, but in which ranks wrote what only one of them should have, is not whole."""
    desk = Path(run.stage.desk)
    found = [(rank, one) for rank in run.stage.ranks for one in read_writes(desk, rank) if one.every_rank]
    if run.failure or not found:
        return run
    rank, first = found[0]
    more = len({one.place for _, one in found}) - 1
    text = f"{first.place} writes {first.path}, as rank 0 does: nothing leaves it to rank 0" + (
        f" ({more} more such line{'s' * (more > 1)})" if more else ""
    )
    return replace(run, failure=Failure("writes", rank, text))


@contextlib.contextmanager
def _passing_interrupts_on(process: Process) -> Iterator[None]:
    """Ctrl-C reaches the script as it would without us; when it has ended (or after a while) we end too."""
    try:
        yield
    except KeyboardInterrupt:
        process.interrupt()
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_GRACE)
        raise
    finally:
        process.kill()
