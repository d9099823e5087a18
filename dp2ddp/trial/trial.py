"""One trial: a script on W devices, in scratch copies; its runs compared.

`run_trial` says top to bottom what is run, and why; as many of them at once as there is memory for (rounds.py):

DataParallel, float64   forked        the reference
DDP, float64            torchrun      the converted script as a user will start it
DataParallel, float32   forked        what doubles hide
DDP, float32            forked        these two unless Subject.float32 says no

judge.py makes the verdict of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.differences import Difference
from dp2ddp.comparison.tolerance import FLOAT32, FLOAT64, Tolerance
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.progress import Progress
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode
from dp2ddp.trial.judge import TrialRuns, aligned_pair, judge
from dp2ddp.trial.pair import Pair
from dp2ddp.trial.prepare import Prepared, RunKind, order_folder, prepare
from dp2ddp.trial.rounds import Rounds
from dp2ddp.trial.space import full_disk_is_said
from dp2ddp.trial.subject import Subject

MODES: tuple[Mode, Mode] = ("dp", "ddp")


def run_trial(subject: Subject, world: int, server: Server, scratch: Path, progress: Progress) -> Verdict:
    """Run a script's two versions on `world` devices, and compare all that they did.

    scratch: a folder for the copies that they run in.
    Raises RunError if one of them fails or hangs, or lacks memory, or space for its scratch copy.
    """
    options, unsteady, aligned, lockstep = subject.options, None, None, None
    with full_disk_is_said(), ExitStack() as copies:
        trial = _Trial(subject, world, server, scratch, progress, copies)

        free, *others = trial.pairs(FLOAT64, *[FLOAT32] * subject.float32, aligned=options.aligned)
        single = others[0] if others else None

        # a seed from the clock: DataParallel trains differently from run to run, and nothing can be judged
        if not options.aligned and free.may_be_unsteady(single):
            unsteady = trial.parting_of_original(free)

        # a version of the user's own may only draw other random numbers: both once more with the same ones
        if not (options.aligned or unsteady or free.compared.same) and subject.rows_by_rank:
            aligned = trial.aligned()

        # rounding has grown so far that a fault could hide in it: both once more, each step from the same state
        if not (options.aligned or unsteady) and free.may_hide_a_fault:
            lockstep = trial.in_lockstep(free)

        verdict = judge(subject, TrialRuns(free, single, unsteady, aligned, lockstep), server, scratch)
        return replace(verdict, memory=trial.rounds.memory, in_turn=trial.rounds.in_turn)


@dataclass(frozen=True)
class _Trial:
    """The runs of a script on a number of devices."""

    subject: Subject
    world: int
    server: Server
    scratch: Path
    progress: Progress
    copies: ExitStack  # closes those of all runs

    @cached_property
    def rounds(self) -> Rounds:
        """Where all runs of the trial run."""
        return Rounds(self.subject, self.world, self.server, self.scratch, self.progress, self._prepare)

    def _prepare(self, kind: RunKind) -> Prepared:
        """Copies for a run, which are closed when all is compared."""
        prepared = prepare(self.subject, kind, self.world, self.scratch)
        self.copies.callback(prepared.copies.close)
        return prepared

    def run(self, *kinds: RunKind, together: bool = False) -> list[tuple[Prepared, Run]]:
        runs = self.rounds.run(kinds, together=together)
        self.progress.begin("comparing")
        return runs

    def pairs(self, *tolerances: Tolerance, aligned: bool) -> list[Pair]:
        """DataParallel and DDP, a pair for each precision."""
        dps, ddps = (
            [RunKind(mode, tolerance.dtype, aligned=aligned) for tolerance in tolerances] for mode in MODES
        )
        # aligned: ranks take over the order of the batches that DataParallel left
        runs = [*self.run(*dps), *self.run(*ddps)] if aligned else self.run(*dps, *ddps)
        sides = zip(runs[: len(dps)], runs[len(dps) :], tolerances, strict=True)
        return self._beside_noise([Pair(*each, port=self.subject.rows_by_rank) for each in sides])

    def _beside_noise(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Where the numbers are further apart than a few roundings: beside DataParallel once more, an ulp away, which
        tells what rounding alone makes of this training (comparison/tolerance.py)."""
        known = pairs[0].is_gross  # the verdict
        unsure = [pair for pair in pairs if pair.may_be_rounding and not known]
        runs = self.run(*(replace(pair.left[0].kind, nudged=True) for pair in unsure))
        noise = {id(pair): run for pair, (_, run) in zip(unsure, runs, strict=True)}
        return [pair.beside(noise[id(pair)]) if id(pair) in noise else pair for pair in pairs]

    def parting_of_original(self, pair: Pair) -> Difference | None:
        """Where DataParallel parts from itself, if it is not the same twice."""
        self.progress.say("DataParallel once more: is it the same twice?")
        (again,) = self.run(replace(pair.left[0].kind, repeated=True))
        return pair.parting_from(again)

    def aligned(self) -> Aligned | None:
        """Both with the same random numbers (runtime/perturb/aligned_runs.py); None where that cannot be done."""
        name = self.subject.version.name
        self.progress.say(f"{name} trains differently; with DataParallel's random numbers, too?")
        try:
            (pair,) = self.pairs(FLOAT64, aligned=True)
        except RunError as error:  # nothing that was found is lost
            self.progress.say(f"the random numbers could not be aligned: {error}")
            return None
        folder = order_folder("float64", self.world, self.scratch)
        return aligned_pair(self.subject, pair, folder, self.server, self.scratch)

    def in_lockstep(self, pair: Pair) -> Pair | None:
        """Both, each step from DataParallel's state (runtime/perturb/lockstep.py); None where that cannot be done."""
        self.progress.say("rounding grows so far in this training that a fault could hide in it; in lockstep")
        kinds = [replace(each[0].kind, lockstep=True) for each in (pair.left, pair.right)]
        try:
            left, right, (_, nudged) = self.run(*kinds, replace(kinds[0], nudged=True), together=True)
        except RunError as error:
            self.progress.say(f"the runs could not be kept in lockstep: {error}")
            return None
        return replace(pair, left=left, right=right, nudged=nudged)
