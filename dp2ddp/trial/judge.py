"""From the runs of a trial to its verdict: steps, lines, files and exit codes compared, and what explains them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.comparison.aligned import Aligned, OwnDraws, own_draws
from dp2ddp.comparison.causes.catalogue import Cause
from dp2ddp.comparison.causes.diagnose import diagnose, with_aligned
from dp2ddp.comparison.causes.evidence import Evidence
from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.differences import GRADIENTS
from dp2ddp.comparison.output_comparison import FilesComparison, Outside
from dp2ddp.comparison.series import worst
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.report.facts import difference_text
from dp2ddp.runtime.hang.collectives import read_calls
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.run_folder import unseeded_places
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.outside import PairOutside, written_outside
from dp2ddp.trial.pair import GROSS, Pair
from dp2ddp.trial.subject import Subject
from dp2ddp.words import counted, names_text


@dataclass(frozen=True)
class TrialRuns:
    """What a trial has run."""

    free: Pair  # in float64
    single: Pair | None = None  # in float32, shown beside it
    unsteady: Difference | None = None  # where DataParallel parts from itself: nothing can be judged
    aligned: Aligned | None = None  # with DataParallel's random numbers: tells why `free` differs
    lockstep: Pair | None = None  # judged in the place of `free`, whose numbers have drowned in rounding


def judge(subject: Subject, runs: TrialRuns, server: Server, scratch: Path) -> Verdict:
    """The verdict, with its likely causes where it is not the same."""
    free, pair = runs.free, runs.lockstep or runs.free
    stage = pair.reference.stage
    _check_devices(pair, stage)
    unseeded = unseeded_places(Path(stage.run_folder))
    drawn = own_draws(Path(stage.aligned)) if stage.aligned else OwnDraws()
    outside, as_started = (PairOutside(subject, each, server, scratch) for each in (pair, free))
    verdict = Verdict(
        world=stage.world,
        only_gradients=subject.options.only_gradients,
        float64=pair.compared,
        float32=runs.single.compared if runs.single else None,
        stdout=outside.stdout,
        printing_ranks=as_started.printing_ranks,
        files=outside.files,
        codes=(free.reference.code, free.other.code),
        last_words=as_started.last_words,
        seconds=(free.reference.seconds, free.other.seconds),
        remarks=tuple(_remarks(subject, runs, pair, outside.files, drawn.taken)),
        lockstep=runs.lockstep is not None,
        printed=outside.printed,
        aligned=runs.aligned,
        hidden=drawn.faults,
        # whether ranks make a wrapper that meets, or call a collective
        met=any(read_calls(Path(free.other.stage.run_folder), rank) for rank in free.other.stage.ranks),
        unshared=(_UNSEEDED.format(names_text(unseeded)),) if unseeded else (),
        unsteady=runs.unsteady,
        by_hashes=_by_hashes(subject, runs),
    )
    return verdict if verdict.same else _explained(subject, pair, verdict)


def _check_devices(pair: Pair, stage: Stage) -> None:
    """A script that names its devices splits by their number, whatever -n says: other chunks, another training."""
    used = {len(rows) for rows in pair.compared.rows}
    if len(used) == 1 and used != {stage.world}:
        (count,) = used
        raise RunError(
            f"{stage.name}: DataParallel is given {counted(count, 'device')} (device_ids), "
            f"so it cannot be compared on {stage.world}; use -n {count}"
        )


# ---- what is told beside the verdict

_UNSEEDED = (
    "random numbers begin without a seed at {}: each run draws others, DataParallel's too; here both versions were "
    "given the same"
)


def _remarks(
    subject: Subject, runs: TrialRuns, pair: Pair, files: FilesComparison, taken: int
) -> Iterator[str]:
    yield from subject.remarks
    free = runs.free.compared
    if runs.lockstep:
        assert free.natural is not None
        yield (
            f"in lockstep: from step {free.hides_from} on, rounding alone brings two right runs up to "
            f"{free.natural.largest:.0e} apart, in which a fault could hide; so ranks took over DataParallel's "
            "parameters, optimizer state and buffers after each step, and each step was judged by itself"
        )
    if taken:
        yield f"the port's ranks began with other numbers in {taken} tensors, and were given DataParallel's"
    yield from written_outside((pair.left[0], pair.right[0]))
    if files.of_libraries:
        yield f"not judged, as it only says how a library was started: {'; '.join(files.of_libraries)}"


def _by_hashes(subject: Subject, runs: TrialRuns) -> bool:
    """Whether the judged run alone differs, and by far: torchrun's ranks have hashes of their own, forked ones one."""
    first, single = runs.free.compared.first, runs.single
    has_own = subject.own_hashes and subject.torchrun and not subject.version.starts_ranks
    if not has_own or single is None or first is None or first.size <= GROSS:
        return False
    return single.compared.same and came_closer(single.compared, first)


def came_closer(single: Comparison, first: Difference) -> bool:
    """Whether float32 was nearer at the step of a difference: what passes for its rounding may be that difference."""
    series = single.series
    if series is None:
        return False
    values = series.gradients if first.kind in GRADIENTS else series.parameters
    apart = worst(values[series.steps == first.step])
    return bool(apart.size and not apart[0] > first.size / 10)


# ---- why it is not the same


def _explained(subject: Subject, pair: Pair, verdict: Verdict) -> Verdict:
    """With its likely causes. What goes wrong in looking for them is said, and takes nothing from the verdict."""
    causes: tuple[Cause, ...] = ()
    remarks = verdict.remarks
    try:
        causes = _causes(subject, pair, verdict)
    except Exception as error:
        remarks += (f"causes could not be looked for: {type(error).__name__}: {error}",)
    return replace(verdict, causes=causes, remarks=remarks)


def _causes(subject: Subject, pair: Pair, verdict: Verdict) -> tuple[Cause, ...]:
    reference, ranks = pair.traces
    aligned = verdict.aligned
    not_tried = False if subject.options.aligned else None  # both had the same numbers, or nobody looked
    causes = diagnose(
        Evidence(
            world=verdict.world,
            reference=reference,
            ranks=ranks,
            comparison=verdict.float64,
            outside=verdict,
            random_only=verdict.random_only if aligned else not_tried,
            unsteady=difference_text(verdict.unsteady) if verdict.unsteady else "",
            by_hashes=verdict.by_hashes,
            other_draw=aligned is not None and aligned.drawn.taken > 0 and not aligned.drawn.unlike,
            edits=_edits(subject),
        )
    )
    return with_aligned(causes, aligned) if aligned else causes


def aligned_pair(subject: Subject, pair: Pair, server: Server, scratch: Path) -> Aligned:
    """What a pair of aligned runs says, with the causes of what still differs."""
    seen = PairOutside(subject, pair, server, scratch)
    reference, ranks = pair.traces
    outside = Outside(stdout=seen.stdout, printing_ranks=seen.printing_ranks, files=seen.files)
    evidence = Evidence(len(ranks), reference, ranks, pair.compared, outside, random_only=False)
    drawn = own_draws(Path(str(pair.reference.stage.aligned)))
    return Aligned(pair.compared, drawn, diagnose(evidence), **vars(outside))


def _edits(subject: Subject) -> dict[str, list[str]]:
    """For a conversion by us: rule -> the lines of the original that it edited."""
    places: dict[str, list[str]] = {}
    conversion = subject.version.conversion
    for file in conversion.files if conversion else ():
        for edit in file.plan.edits if file.plan else ():
            places.setdefault(edit.code, []).append(f"{edit.file or subject.name}, {edit.place}")
    return places
