"""Looks after the memory of runs while they run.

Of several runs the last ones are ended when the memory goes; they are run again later (rounds.py). What a single run
fails of is said as what it is, and not as a fault of the script.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from dp2ddp.errors import RunError
from dp2ddp.progress import Progress
from dp2ddp.report.failure_text import BeforeFailure, failure_document, failure_text
from dp2ddp.runtime.process.room import Room, count_kills, held_by, read_room
from dp2ddp.runtime.process.run import Failure, Look, Run, Running, watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial import memory
from dp2ddp.trial.memory import Seen, how_many_to_end, lacked_memory, memory_text, reserve, room_text
from dp2ddp.trial.runs import last_words, name_of

_LOOK, _WEIGH = 0.05, 0.25  # seconds between two looks at what is free, and at what each run holds


class MemoryWatch:
    """Watches runs that run at once. `may_wait`: they can be ended, and run later."""

    def __init__(
        self,
        runnings: Sequence[Running],
        server: Server,
        progress: Progress,
        *,
        may_wait: bool,
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
            names = " and ".join(name_of(each.stage) for each in ended)
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
            self._progress.say(f"{name_of(run.stage)} got no more memory beside the others: again, alone")
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
        what_now = BeforeFailure((), memory.ADVICE)
        return RunError(
            failure_text(failed, before=what_now), failure_document(failed, words, before=what_now)
        )

    def _killed_since(self) -> int:
        """Processes that the kernel has ended for lack of memory since these runs began; 0 where it does not say."""
        return (count_kills() or 0) - (self._kills or 0)
