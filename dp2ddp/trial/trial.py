"""One trial: a script on W devices, in scratch copies; its runs compared.

`run_trial` says top to bottom what is run, and why; as many of them at once as there is memory for (rounds.py):

DataParallel, float64   forked        the reference
DDP, float64            torchrun      the converted script as a user will start it
DataParallel, float32   forked        what doubles hide
DDP, float32            forked        these two unless Subject.float32 says no

judge.py makes the verdict of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.differences import Difference
from dp2ddp.comparison.tolerance import FLOAT32, FLOAT64, Tolerance
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.progress import Progress
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode
from dp2ddp.trial.judge import TrialRuns, aligned_pair, judge
from dp2ddp.trial.pair import Pair
from dp2ddp.trial.prepare import RunKind, full_disk_is_said
from dp2ddp.trial.rounds import Rounds
from dp2ddp.trial.subject import Subject

MODES: tuple[Mode, Mode] = ("dp", "ddp")


def run_trial(subject: Subject, world: int, server: Server, scratch: Path, progress: Progress) -> Verdict:
    """Run a script's two versions on `world` devices, and compare all that they did.

    scratch: a folder for the copies that they run in.
    Raises RunError if one of them fails or hangs, or lacks memory, or there is no space for its scratch copy.
    """
    options, unsteady, aligned, lockstep = subject.options, None, None, None
    with full_disk_is_said(), ExitStack() as copies:
        rounds = Rounds(subject, world, server, scratch, progress, copies)

        free, *others = _pairs(rounds, FLOAT64, *[FLOAT32] * subject.float32, aligned=options.aligned)
        single = others[0] if others else None

        # a seed from the clock: DataParallel trains differently from run to run, and nothing can be judged
        if not options.aligned and free.may_be_unsteady(single):
            unsteady = _parting_of_original(rounds, free)

        # a version of the user's own may only draw other random numbers: both once more with the same ones
        if not (options.aligned or unsteady or free.compared.same) and subject.rows_by_rank:
            with _or_reported(progress, "the random numbers could not be aligned"):
                aligned = _aligned(rounds)

        # rounding has grown so far that a fault could hide in it: both once more, each step from the same state
        if not (options.aligned or unsteady) and free.may_hide_a_fault:
            with _or_reported(progress, "the runs could not be kept in lockstep"):
                lockstep = _in_lockstep(rounds, free)

        verdict = judge(subject, TrialRuns(free, single, unsteady, aligned, lockstep), server, scratch)
        return replace(verdict, memory=rounds.memory, in_turn=rounds.in_turn)


@contextmanager
def _or_reported(progress: Progress, what: str) -> Iterator[None]:
    """Runs beside those that are judged: where they fail, nothing that was found is lost."""
    try:
        yield
    except RunError as error:
        progress.say(f"{what}: {error}")


def _pairs(rounds: Rounds, *tolerances: Tolerance, aligned: bool) -> list[Pair]:
    """DataParallel and DDP, a pair for each precision."""
    dps, ddps = (
        [RunKind(mode, tolerance.dtype, aligned=aligned) for tolerance in tolerances] for mode in MODES
    )
    # aligned: ranks take over the order of the batches that DataParallel left
    runs = [*rounds.run(*dps), *rounds.run(*ddps)] if aligned else rounds.run(*dps, *ddps)
    sides = zip(runs[: len(dps)], runs[len(dps) :], tolerances, strict=True)
    return _beside_noise(rounds, [Pair(*each, port=rounds.subject.rows_by_rank) for each in sides])


def _beside_noise(rounds: Rounds, pairs: Sequence[Pair]) -> list[Pair]:
    """Where the numbers are further apart than a few roundings: beside DataParallel once more, an ulp away, which tells
    what rounding alone makes of this training (comparison/tolerance.py)."""
    known = pairs[0].is_gross  # the verdict
    unsure = [pair for pair in pairs if pair.may_be_rounding and not known]
    runs = rounds.run(*(replace(pair.left[0].kind, nudged=True) for pair in unsure))
    noise = {id(pair): run for pair, (_, run) in zip(unsure, runs, strict=True)}
    return [replace(pair, nudged=noise[id(pair)]) if id(pair) in noise else pair for pair in pairs]


def _parting_of_original(rounds: Rounds, pair: Pair) -> Difference | None:
    """Where DataParallel parts from itself, if it is not the same twice."""
    rounds.progress.say("DataParallel once more: is it the same twice?")
    (again,) = rounds.run(replace(pair.left[0].kind, repeated=True))
    return pair.parting_from(again)


def _aligned(rounds: Rounds) -> Aligned:
    """Both with the same random numbers (runtime/perturb/aligned_runs.py)."""
    name = rounds.subject.version.name
    rounds.progress.say(f"{name} trains differently; with DataParallel's random numbers, too?")
    (pair,) = _pairs(rounds, FLOAT64, aligned=True)
    return aligned_pair(rounds.subject, pair, rounds.server, rounds.scratch)


def _in_lockstep(rounds: Rounds, pair: Pair) -> Pair:
    """Both, each step from DataParallel's state (runtime/perturb/steps.py)."""
    rounds.progress.say("rounding grows so far in this training that a fault could hide in it; in lockstep")
    kinds = [replace(each[0].kind, lockstep=True) for each in (pair.left, pair.right)]
    left, right, (_, nudged) = rounds.run(*kinds, replace(kinds[0], nudged=True), together=True)
    return replace(pair, left=left, right=right, nudged=nudged)
