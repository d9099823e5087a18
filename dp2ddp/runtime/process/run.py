"""Run a stage and watch it: the parent's side, without torch.

process = Process(stage)            one python, or torchrun
forked = Server().start(stage)      children of a process that has torch imported already
runs = watch([process, forked], timeout=60)
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dp2ddp.runtime.hang.collectives import parting, read_calls
from dp2ddp.runtime.hang.rank_positions import (
    ask_positions,
    ended_positions,
    failed_position,
    misses_a_rank,
    without_gloo_details,
)
from dp2ddp.runtime.hang.stacks import RankPosition
from dp2ddp.runtime.process import launch_command
from dp2ddp.runtime.process.overlay import write_overlay
from dp2ddp.runtime.process.scratch import scratch_folder
from dp2ddp.runtime.process.timeout import Timeout
from dp2ddp.runtime.processes import kill_tree, parent_variable
from dp2ddp.runtime.run_folder import (
    LAUNCHER,
    RankStatus,
    prepare_run_folder,
    read_heartbeats,
    read_statuses,
    request_stacks,
)
from dp2ddp.runtime.stage import Stage
from dp2ddp.signals import signals_wait

_LOOK = 0.02  # seconds between two looks
_START = 60.0  # seconds more until all ranks have begun: torch is being imported
_END = 10.0  # seconds more once the script is over on all ranks: the interpreter ends
GRACE = 5.0  # seconds that ranks have to end after one has failed; torchrun does not give more


@dataclass(frozen=True)
class Failure:
    """Why a run is not whole."""

    kind: str  # crash, hang; memory: the machine had too little
    rank: int | None  # the first one that failed; None where no single one is to blame
    text: str  # the last line of its traceback, or what happened instead of one
    positions: tuple[RankPosition, ...] = ()  # where the ranks were when it was noticed
    parting: str = ""  # the first collective that not all ranks call
    misses_a_rank: bool = False  # it says itself that another rank had gone


@dataclass(frozen=True)
class Run:
    """A run that is over: an exit code for each rank (one for DataParallel), None where it was ended from outside."""

    stage: Stage
    codes: tuple[int | None, ...]
    seconds: float  # from start to end
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
        ends = [each for rank, each in read_statuses(self.stage).items() if rank >= 0]
        on_purpose = any(each.code == self.code for each in ends) and not any(each.error for each in ends)
        return self.failure.kind == "crash" and on_purpose

    def output(self, rank: int, ending: str = "out") -> str:
        """What a rank printed on stdout ("out") or stderr ("err"), if its stage says `capture`; else ""."""
        path = Path(self.stage.run_folder) / f"rank{rank}.{ending}"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


@dataclass(frozen=True)
class Look:
    """What can be seen of a run from outside."""

    stage: Stage
    begun: bool  # the script runs on all ranks
    ended: bool
    steps: int  # of the rank that has taken the fewest
    seconds: float  # since its start; of one that is over, from start to end


class Running(Protocol):
    """A run under way."""

    stage: Stage
    started: float  # time.monotonic(), seconds

    def codes(self) -> tuple[int | None, ...] | None:
        """The exit code of each rank; None while it runs."""

    def kill(self) -> None:
        """End it and everything it started."""


class Process:
    """A run in a process of its own: python for dp, torchrun for ddp."""

    def __init__(self, stage: Stage, environment: dict[str, str] | None = None, **streams: Any) -> None:
        self.stage = stage
        stage_file = prepare_run_folder(stage)
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            launch_command.command(stage, stage_file),
            cwd=stage.folder,
            env={**(environment or launch_command.environment()), **parent_variable()},
            start_new_session=True,  # Ctrl-C comes to us alone, and we pass it on
            **{"stdin": subprocess.DEVNULL, **streams},
        )

    def codes(self) -> tuple[int | None, ...] | None:
        """The exit code of each rank; None while any runs."""
        code = self._process.poll()
        if code is None or self.stage.mode == "dp":
            return None if code is None else (code,)
        return rank_codes(self.stage, code)

    def interrupt(self) -> None:
        """Pass a Ctrl-C on, and wait a while for the script's end."""
        self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.wait(GRACE)

    def kill(self) -> None:
        """End it and everything it started."""
        with signals_wait():
            if self._process.poll() is None:
                kill_tree(self._process.pid)
            self._process.wait()


def watch(
    runnings: Sequence[Running],
    timeout: float | None,
    on_end: Callable[[Run], None] = lambda run: None,
    on_look: Callable[[Sequence[Look]], None] = lambda looks: None,
) -> list[Run]:
    """Wait until all are over, and return them in their order.

    A run of which no rank moves or computes (timeout.py) for `timeout` seconds is killed, and its failure says where
    each rank was; None waits for ever. Start-up and the end of the interpreter have some seconds more. `on_end` gets
    each run as it ends, `on_look` what is seen of all of them, many times a second.
    """
    watched = [_Watched(running, timeout) for running in runnings]
    while pending := [each for each in watched if each.run is None]:
        for each in pending:
            each.poll()
            if each.run is not None:
                on_end(each.run)
        on_look([each.look for each in watched])
        time.sleep(_LOOK)
    return [each.run for each in watched if each.run is not None]


class _Watched:
    """A run, and whether it still moves."""

    def __init__(self, running: Running, timeout: float | None) -> None:
        self._running, self._stage = running, running.stage
        self._heartbeats: tuple[tuple[int, int], ...] = ()
        self._timeout = Timeout(timeout)
        self._positions: tuple[RankPosition, ...] = ()  # when the first rank failed
        self.run: Run | None = None

    @property
    def look(self) -> Look:
        begun = bool(self._heartbeats) and all(beats for beats, _ in self._heartbeats)
        steps = min((steps for _, steps in self._heartbeats), default=0)
        seconds = self.run.seconds if self.run else time.monotonic() - self._running.started
        return Look(self._stage, begun, self.run is not None, steps, seconds)

    def poll(self) -> None:
        codes = self._running.codes()
        before, self._heartbeats = self._heartbeats, read_heartbeats(Path(self._stage.run_folder))
        if codes is not None:
            self.run = self._ended(codes, _crash(self._stage, codes, self._positions))
            return
        if self._heartbeats != before:
            self._timeout.moved()
            if not self._positions and some_failed(self._stage):
                self._positions = ask_positions(self._stage)
                request_stacks(Path(self._stage.run_folder))
        self._timeout.look(self._processes())
        if self._timeout.is_over() and self._timeout.is_over(self._allowance()):
            failure = self._given_up()
            self._running.kill()
            self.run = self._ended(rank_codes(self._stage, None), failure)

    def _processes(self) -> Iterator[int]:
        """Those of the ranks; where the script starts them, the one that it begins in."""
        statuses = read_statuses(self._stage)
        ranks = [LAUNCHER] if self._stage.starts_ranks else self._stage.ranks
        yield from (statuses[rank].pid for rank in ranks if rank in statuses)

    def _given_up(self) -> Failure:
        """A rank that waits for one which has failed is no hang."""
        crash = None
        if some_failed(self._stage):
            positions = self._positions or ask_positions(self._stage)
            crash = _crash(self._stage, rank_codes(self._stage, None), positions)
        return crash or _hang(self._stage, self._timeout.why)

    def _allowance(self) -> float:
        """Seconds more where no script is expected to move."""
        if not all(beats for beats, _ in self._heartbeats):
            return _START
        statuses = read_statuses(self._stage)
        over = all(rank in statuses and statuses[rank].is_over for rank in self._stage.ranks)
        return _END if over else 0.0

    def _ended(self, codes: tuple[int | None, ...], failure: Failure | None) -> Run:
        return Run(self._stage, codes, time.monotonic() - self._running.started, failure)


def rank_codes(stage: Stage, code: int | None) -> tuple[int | None, ...]:
    """The exit code of each rank: from its own last words, or from torchrun's where it died without any."""
    statuses = read_statuses(stage)
    codes = tuple(statuses[rank].code if rank in statuses else None for rank in stage.ranks)
    if code is None:
        return codes
    if code == 0 and not stage.starts_ranks:  # torchrun's 0 is that of all its ranks
        return tuple(each or 0 for each in codes)
    if not code:
        return codes
    reported = _codes_from_torchrun(Path(stage.run_folder))
    if all(each == 0 for each in codes):
        return (next(iter(reported.values()), code),) * len(codes)
    return tuple(reported.get(rank) if each is None else each for rank, each in enumerate(codes))


def _codes_from_torchrun(run_folder: Path) -> dict[int, int]:
    """The exit codes of ranks that failed, from the table that torchrun prints on stderr."""
    log = run_folder / "torchrun.err"
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = re.findall(r"rank\s*:\s*(\d+) \(local_rank.*\n\s*exitcode\s*:\s*(-?\d+)", text)
    return {int(rank): int(code) for rank, code in lines}


def some_failed(stage: Stage) -> bool:
    """Whether a rank of several has said that it failed."""
    failed = (rank >= 0 and each.code and each.error for rank, each in read_statuses(stage).items())
    return len(stage.ranks) > 1 and any(failed)


def _crash(
    stage: Stage, codes: tuple[int | None, ...], positions: tuple[RankPosition, ...]
) -> Failure | None:
    if all(code == 0 for code in codes):
        return None
    statuses = read_statuses(stage)
    if stage.starts_ranks and (missing := set(stage.ranks) - statuses.keys()):
        return _never_joined(stage, len(missing), statuses.get(LAUNCHER))
    first = first_to_fail(codes, statuses)
    status, code = (None, None) if first is None else (statuses.get(first), codes[first])
    error = status.error if status else ""
    text = without_gloo_details(error) if error else _end_in_words(stage, code)
    known = {position.rank: position for position in (*ended_positions(stage), *positions)}
    everyone = [position for rank, position in sorted(known.items()) if rank != first]
    if first is not None and len(stage.ranks) > 1:
        everyone.insert(0, failed_position(first, status, text))
    return Failure("crash", first, text, tuple(everyone), _parting_text(stage), misses_a_rank(error))


def first_to_fail(codes: Sequence[int | None], statuses: Mapping[int, RankStatus]) -> int | None:
    """The rank that failed before the others; None if none did."""
    failed = [rank for rank, code in enumerate(codes) if code]
    return min(failed, key=lambda rank: _when(codes[rank], statuses.get(rank)), default=None)


def _when(code: int | None, status: RankStatus | None) -> float:
    """The others fail a moment later, because the first one is gone; one that was killed leaves no word.

    torchrun ends those that are left by SIGTERM: nobody has failed later than they.
    """
    if code in _KILLS and not (status and status.error):
        return 0.0
    return status.ended if status and status.is_over else math.inf


_LEAST_SPACE = 4096  # bytes: a file needs a block
_KILLS = {-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE}


def _end_in_words(stage: Stage, code: int | None) -> str:
    """How a rank ended that left no word of its own; on a full disk it could not."""
    if shutil.disk_usage(stage.run_folder).free < _LEAST_SPACE:
        return "No space left on device"
    if code is None:
        return "ended from outside"
    if code == -signal.SIGKILL:
        return "ended by signal SIGKILL (out of memory?)"
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _hang(stage: Stage, why: str) -> Failure:
    positions = ask_positions(stage)
    waiting = [position for position in positions if position.collective]
    free = [position.rank for position in positions if not position.collective]
    rank = free[0] if len(free) == 1 and waiting else None
    return Failure("hang", rank, why, positions, _parting_text(stage))


def _parting_text(stage: Stage) -> str:
    """The first collective that not all ranks call, in words; "" where all call the same."""
    return parting({rank: read_calls(Path(stage.run_folder), rank) for rank in stage.ranks})


def _never_joined(stage: Stage, missing: int, launcher: RankStatus | None) -> Failure:
    if launcher and launcher.error:
        return Failure("crash", None, launcher.error)
    return Failure(
        "crash", None, f"{stage.world - missing} of {stage.world} ranks called init_process_group; it was started with "
        "python, as a script that starts its ranks itself; if it does not, --launcher torchrun starts them for it"
    )  # fmt: skip


def run_here(
    stage: Stage, replaced: Mapping[Path, bytes], settings: Mapping[str, str], timeout: float | None
) -> Run:
    """Run a stage with our own stdin, stdout and stderr, in a run folder of its own. A failure is in the run returned.

    `replaced`: files and the text that runs in their place; `settings`: environment variables on top of the user's;
    `timeout` as for `watch`.
    """
    with scratch_folder() as folder:
        pairs = write_overlay(folder / "overlay", replaced.items())
        stage = dataclasses.replace(stage, run_folder=str(folder), replaced=pairs)
        if sys.stdout is not None:  # closed
            sys.stdout.flush()
        environment = {**launch_command.environment(), **settings}
        process = Process(stage, environment, stdin=None if sys.stdin else subprocess.DEVNULL)
        try:
            return watch([process], timeout)[0]
        except KeyboardInterrupt:
            process.interrupt()
            raise
        finally:
            process.kill()
