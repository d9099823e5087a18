"""The runs of a trial: how many go at once, and which of them are ended again, so that the memory suffices.

Nobody knows beforehand what a script needs. All runs of a trial start at once where there is room for as many
processes with torch and an empty script in them, so small scripts lose nothing. While they run, the free memory is
looked at: below a reserve the last ones are ended, and are run again when the others are over. From then on one runs
after the other, so only what does not fit alone fails; that is said as what it is, and not as a fault of the script.

First what is decided, from numbers alone; then the watch, which reads them; then who starts the runs, round by round:
one that was ended on the way gets a new scratch copy, and comes again in a next round, which is one run.
"""

from __future__ import annotations

import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from dp2ddp.comparison.verdict import HeldMemory
from dp2ddp.errors import RunError
from dp2ddp.progress import Progress
from dp2ddp.report.failure_text import BeforeFailure, failure_document, failure_text
from dp2ddp.runtime.process.room import Room, count_kills, held_by, read_room
from dp2ddp.runtime.process.run import Failure, Look, Run, Running, watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.prepare import Prepared, RunKind, originals_kept, prepare
from dp2ddp.trial.runs import Listener, is_torchrun, last_words, raise_or_report, show, start
from dp2ddp.trial.subject import Subject
from dp2ddp.words import size

_LOOK, _WEIGH = 0.05, 0.25  # seconds between two looks at what is free, and at what each run holds
MB = 2**20
_PART, _LEAST, _MOST = 10, 256 * MB, 2048 * MB
FORKED, STARTED = 60 * MB, 400 * MB  # measured, torch 2.14: of its own, a rank that runs an empty script
AGENT = 300 * MB  # torchrun's own
_SAID = (  # what Python, torch, C++ and a loader say; only where a run has failed
    "MemoryError",
    "can't allocate memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "killed by signal: Killed",
)


@dataclass(frozen=True)
class Seen:
    """What was seen while a run ran: the most that it held, and how little was free."""

    held: int  # bytes, the most
    before: Room  # at the start of its round
    lowest: Room
    kills: int = 0  # processes that the kernel ended meanwhile for lack of memory, also of others


def reserve(room: Room) -> int:
    """Bytes that stay free: two processors fill about 150 MB between two looks, and a process's end takes a while."""
    return min(max(room.limit // _PART, _LEAST), _MOST)


def empty_need(processes: int, *, torchrun: bool) -> int:
    """What so many processes take at least."""
    return AGENT + processes * STARTED if torchrun else processes * FORKED


def how_many_at_once(room: Room, needs: Sequence[int]) -> int:
    """How many of these runs, from the first on, fit into what is free; at least one, which has to be tried."""
    fit = [total <= room.free - reserve(room) for total in accumulate(needs)]
    return max(sum(fit), len(fit[:1]))


def how_many_to_end(room: Room, held: Sequence[int], coming_back: int = 0) -> int:
    """How many of these runs, from the last on, are ended because the memory goes: as few as make it twice the reserve.

    held: what each has now; coming_back: what those had that have been ended and are not gone yet. The first goes on
    whatever happens: it has to be tried.
    """
    free, enough = room.free + coming_back, reserve(room)
    if free >= enough:
        return 0
    count = 0
    while count < len(held) - 1 and free < 2 * enough:
        count += 1
        free += held[-count]
    return count


def lacked_memory(run: Run, seen: Seen) -> bool:
    """Whether a run failed because the system gave it no more memory.

    A SIGKILL that is not ours may come from anybody: it counts where the kernel says that it ended a process for that,
    or where (nearly) nothing was free (a daemon in its place).
    """
    if run.failure is None or run.failure.kind != "crash":
        return False
    if any(words in run.failure.text for words in _SAID):
        return True
    killed = -signal.SIGKILL in run.codes
    return killed and (seen.kills > 0 or seen.lowest.free < reserve(seen.lowest))


ADVICE = (
    "a smaller batch or model, by arguments of the script (behind --); fewer devices (-n); fewer steps (--steps), "
    "where it keeps what it computes; or a machine with more memory"
)


def memory_text(run: Run, seen: Seen) -> str:
    """What a run held that lacked memory when it ran alone, what there was, and how it ended."""
    assert run.failure is not None
    ended = "the system ended one (SIGKILL)" if -signal.SIGKILL in run.codes else run.failure.text
    who = "it" if run.stage.mode == "dp" else "its ranks"
    held = f"{who} held {size(seen.held)}, " if seen.held else ""  # 0: it was over before anybody looked
    most, _ = resource.getrlimit(resource.RLIMIT_AS)  # of a single process, where somebody has set that
    limit = "" if most == resource.RLIM_INFINITY else f", and a process may have {size(most)} (ulimit -v)"
    before = room_text(seen.before, "were") + limit
    return f"{held}with nothing beside; before, {before}: {ended}"


def room_text(room: Room, are: str = "are") -> str:
    """ "1.2 GB are free of the 4.0 GB of this machine"."""
    return f"{size(room.free)} {are} free of the {size(room.limit)} of {room.of}"


class MemoryWatch:
    """Watches runs that run at once. `may_wait`: they can be ended, and run later."""

    def __init__(
        self, runnings: Sequence[Running], server: Server, progress: Progress, *, may_wait: bool
    ) -> None:
        self.peaks: dict[str, int] = {}  # run folder -> bytes: the most that the run was seen to hold
        self.aside: set[str] = set()  # run folders of what has to run again
        self._runnings, self._server = runnings, server
        self._progress, self._may_wait = progress, may_wait
        self._before = self._lowest = read_room()
        self._kills = count_kills()
        self._looked = self._weighed = 0.0

    def watch(
        self,
        timeout: float | None,
        on_end: Callable[[Run], None],
        on_look: Callable[[Sequence[Look]], object],
    ) -> list[Run]:
        """`watch` of run.py; runs that are set aside are not passed on. RunError for one that lacks memory."""

        def look(looks: Sequence[Look]) -> None:
            self._look()
            on_look([each for each in looks if each.stage.run_folder not in self.aside])

        return watch(self._runnings, timeout, lambda run: self._end(run, on_end), look)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        room = read_room()
        self._lowest = min(self._lowest, room, key=lambda each: each.free)
        running = [each for each in self._runnings if each.codes() is None]
        if now - self._weighed >= _WEIGH:
            self._weighed = now
            for each in running:
                self._weigh(each)
        leaving = [each for each in running if each.stage.run_folder in self.aside]
        for each in leaving:  # a rank may not have said yet which process it is
            each.kill()
        if self._may_wait:
            self._make_room(room, [each for each in running if each not in leaving], leaving)

    def _weigh(self, running: Running) -> int:
        held = held_by(running.stage, self._server.pid)
        folder = running.stage.run_folder
        self.peaks[folder] = max(held, self.peaks.get(folder, 0))
        return held

    def _make_room(self, room: Room, running: Sequence[Running], leaving: Sequence[Running]) -> None:
        """End the last runs if the memory goes."""
        if room.free >= reserve(room):
            return
        held, coming_back = ([self._weigh(each) for each in group] for group in (running, leaving))
        ended = running[len(running) - how_many_to_end(room, held, sum(coming_back)) :]
        for each in reversed(ended):
            self.aside.add(each.stage.run_folder)
            each.kill()
        if ended:
            names = " and ".join(each.stage.words for each in ended)
            self._progress.say(
                f"{room_text(room)}, too little for all at once: {names} again behind the others"
            )

    def _end(self, run: Run, on_end: Callable[[Run], None]) -> None:
        folder = run.stage.run_folder
        if folder in self.aside:
            return
        seen = Seen(self.peaks.get(folder, 0), self._before, self._lowest, self._killed_since())
        if lacked_memory(run, seen):
            if not self._may_wait:
                raise self._error(run, memory_text(run, seen))
            self.aside.add(folder)
            self._progress.say(f"{run.stage.words} got no more memory beside the others: again, alone")
        else:
            on_end(run)

    def _error(self, run: Run, text: str) -> RunError:
        """What is raised where the machine failed: where other ranks stood says nothing."""
        words = last_words(run)
        if words:
            self._progress.say(words)
        killed = [
            rank for rank, code in zip(run.stage.ranks, run.codes, strict=True) if code == -signal.SIGKILL
        ]
        rank = next(iter(killed), run.failure.rank if run.failure else None)
        failed = replace(run, failure=Failure("memory", rank, text))
        what_now = BeforeFailure((), ADVICE)
        return RunError(
            failure_text(failed, before=what_now), failure_document(failed, words, before=what_now)
        )

    def _killed_since(self) -> int:
        """Processes that the kernel has ended for lack of memory since these runs began; 0 where it does not say."""
        return (count_kills() or 0) - (self._kills or 0)


def run_at_once(
    subject: Subject, prepared: Sequence[Prepared], server: Server, progress: Progress, may_wait: bool = True
) -> tuple[list[Run], MemoryWatch]:
    """Run all these; RunError if one fails, and was not set aside to run again (where there are several)."""
    with originals_kept(prepared), ExitStack() as stack:
        runnings = []
        for each in prepared:
            running = start(subject, each, server, stack)
            stack.callback(running.kill)
            runnings.append(running)
        listener = Listener(runnings, lambda run: raise_or_report(run, progress, subject))
        may_wait = may_wait and len(runnings) > 1
        memory_watch = MemoryWatch(runnings, server, progress, may_wait=may_wait)

        def on_look(looks: Sequence[Look]) -> None:
            listener.on_look()
            show(looks, progress)

        runs = memory_watch.watch(subject.options.timeout, listener.on_end, on_look)
        listener.report_all()
    return runs, memory_watch


@dataclass
class Rounds:
    """Runs all that a trial asks for; keeps what the runs held, and whether memory was too short for all at once."""

    subject: Subject
    world: int
    server: Server
    scratch: Path
    progress: Progress
    copies: ExitStack  # closes those of all runs, when all is compared
    memory: tuple[HeldMemory, ...] = ()  # of all runs
    in_turn: bool = False  # they did not all run at once

    def run(self, *kinds: RunKind, together: bool = False) -> list[tuple[Prepared, Run]]:
        """All these runs, in their order; RunError if one fails.

        together: each waits for the others, so all have to run at once.
        """
        done: dict[int, tuple[Prepared, Run]] = {}
        waiting = list(enumerate(kinds))
        while waiting:
            # what is judged comes first: it counts, and torchrun takes longest to start
            waiting.sort(key=lambda each: (each[1].dtype != "float64", each[0]))
            count = self._count_at_once([kind for _, kind in waiting], together)
            self.in_turn |= count < len(waiting)
            now, waiting = waiting[:count], waiting[count:]
            self.progress.begin("copying the folder")
            prepared = [self._copied(kind) for _, kind in now]
            self.progress.begin("training")
            runs, memory_watch = run_at_once(self.subject, prepared, self.server, self.progress, not together)
            for (place, kind), ready, run in zip(now, prepared, runs, strict=True):
                folder = run.stage.run_folder
                if folder in memory_watch.aside:
                    ready.copies.close()
                    shutil.rmtree(str(ready.stage.scratch), ignore_errors=True)
                    waiting.append((place, replace(kind, again=kind.again + 1)))
                    self.in_turn = True
                else:
                    held = HeldMemory(run.stage.words, memory_watch.peaks.get(folder, 0))
                    self.memory = (*self.memory, held)
                    done[place] = ready, run
        self.progress.begin("comparing")
        return [done[place] for place in range(len(kinds))]

    def _copied(self, kind: RunKind) -> Prepared:
        prepared = prepare(self.subject, kind, self.world, self.scratch)
        self.copies.callback(prepared.copies.close)
        return prepared

    def _count_at_once(self, kinds: Sequence[RunKind], together: bool) -> int:
        room = read_room()
        needs = [
            empty_need(1 if kind.mode == "dp" else self.world, torchrun=is_torchrun(self.subject, kind))
            for kind in kinds
        ]
        count = how_many_at_once(room, needs)
        if together and count < len(kinds):
            raise RunError(f"{len(kinds)} runs have to run at once, and do not fit: {room_text(room)}")
        return 1 if self.in_turn and not together else count
