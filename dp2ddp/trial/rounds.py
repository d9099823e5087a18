"""The runs of a trial, as many at once as there is memory for.

A round: as many runs as memory.py says are started, and watched until all are over. One that was ended on the way,
so that the others have enough, gets a new scratch copy and comes again in a next round, which is one run.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.comparison.verdict import HeldMemory
from dp2ddp.errors import RunError
from dp2ddp.progress import Progress
from dp2ddp.runtime.process.room import read_room
from dp2ddp.runtime.process.run import Look, Run
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.memory import MemoryWatch, empty_need, how_many_at_once, room_text
from dp2ddp.trial.prepare import Prepared, RunKind, originals_kept, prepare
from dp2ddp.trial.runs import Listener, is_torchrun, name_of, raise_or_report, show, start
from dp2ddp.trial.subject import Subject


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
            runs, memory_watch = self._run_round(prepared, together)
            for (place, kind), ready, run in zip(now, prepared, runs, strict=True):
                folder = run.stage.run_folder
                if folder in memory_watch.aside:
                    ready.copies.close()
                    shutil.rmtree(str(ready.stage.scratch), ignore_errors=True)
                    waiting.append((place, replace(kind, again=kind.again + 1)))
                    self.in_turn = True
                else:
                    held = HeldMemory(name_of(run.stage), memory_watch.peaks.get(folder, 0))
                    self.memory = (*self.memory, held)
                    done[place] = ready, run
        self.progress.begin("comparing")
        return [done[place] for place in range(len(kinds))]

    def _copied(self, kind: RunKind) -> Prepared:
        prepared = prepare(self.subject, kind, self.world, self.scratch)
        self.copies.callback(prepared.copies.close)
        return prepared

    def _run_round(self, prepared: Sequence[Prepared], together: bool) -> tuple[list[Run], MemoryWatch]:
        with originals_kept(prepared), ExitStack() as stack:
            runnings = []
            for each in prepared:
                running = start(self.subject, each.stage, self.server, stack)
                stack.callback(running.kill)
                runnings.append(running)
            listener = Listener(runnings, lambda run: raise_or_report(run, self.progress, self.subject))
            may_wait = len(runnings) > 1 and not together
            memory_watch = MemoryWatch(runnings, self.server, self.progress, may_wait=may_wait)

            def on_look(looks: Sequence[Look]) -> None:
                listener.on_look()
                show(looks, self.progress)

            runs = memory_watch.watch(self.subject.options.timeout, listener.on_end, on_look)
            listener.report_all()
        return runs, memory_watch

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
