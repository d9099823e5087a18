"""From the runs of a trial to its verdict: steps, lines, files and exit codes compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dp2ddp.comparison.aligned import Aligned, unlike_text, unshared, weights_taken
from dp2ddp.comparison.causes.diagnose import diagnose, with_aligned
from dp2ddp.comparison.causes.evidence import Evidence
from dp2ddp.comparison.causes.words import names_text
from dp2ddp.comparison.compare import Comparison, Difference, compare
from dp2ddp.comparison.contents import content_hash, digest
from dp2ddp.comparison.differences import GRADIENTS
from dp2ddp.comparison.libraries_own import library_file
from dp2ddp.comparison.output_comparison import (
    FileDifference,
    FilesComparison,
    OwnCode,
    TextComparison,
    compare_files,
    compare_text,
)
from dp2ddp.comparison.spelling import Spelling
from dp2ddp.comparison.tolerance import FLOAT64, HIDING, Tolerance
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.report.counting import counted
from dp2ddp.report.facts import difference_text
from dp2ddp.runtime.hang.collectives import read_calls
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.run_folder import read_status, unseeded_places
from dp2ddp.runtime.stage import Stage
from dp2ddp.trace.records import Trace, read_trace
from dp2ddp.trial.file_writers import written_by_many, written_outside
from dp2ddp.trial.prepare import Prepared
from dp2ddp.trial.subject import Subject


@dataclass(frozen=True)
class Pair:
    """DataParallel and DDP in one precision, over; perhaps DataParallel an ulp away."""

    left: tuple[Prepared, Run]
    right: tuple[Prepared, Run]
    tolerance: Tolerance
    nudged: Run | None = None
    port: bool = False  # made by hand

    @property
    def reference(self) -> Run:
        """DataParallel's run."""
        return self.left[1]

    @property
    def other(self) -> Run:
        """The run of the DDP version."""
        return self.right[1]

    @cached_property
    def traces(self) -> tuple[Trace, tuple[Trace, ...]]:
        """The records of the reference and of each rank; those of backward passes where no optimizer takes a step."""
        ranks = tuple(_trace(self.other, rank) for rank in self.other.stage.ranks)
        reference = _trace(self.reference, 0)
        passes = [trace.passes for trace in (reference, *ranks)]
        known = [each for each in passes if each is not None]
        if len(known) == len(passes) and any(map(len, known)):
            return known[0], tuple(known[1:])
        return reference, ranks

    @cached_property
    def compared(self) -> Comparison:
        """Their records compared, by natural noise if DataParallel was run once more."""
        reference, ranks = self.traces
        nudged = _trace(self.nudged, 0) if self.nudged else None
        if nudged and reference.unstepped:
            nudged = nudged.passes or nudged
        return compare(reference, ranks, self._tolerance, nudged, port=self.port)

    @property
    def _tolerance(self) -> Tolerance:
        """Beside half precision that both ask for, float32 is coarser; in float64 runs it is left out."""
        if self.tolerance.dtype == "float64":
            return self.tolerance
        reference, ranks = self.traces
        dtypes = {
            frozenset(dtype for line in each.lines for dtype in line["precision"])
            for each in (reference, *ranks)
        }
        return self.tolerance.under_autocast(dtypes.pop()) if len(dtypes) == 1 else self.tolerance

    @property
    def may_be_rounding(self) -> bool:
        """Whether there is a difference that natural noise may explain."""
        first = self.compared.first
        return (
            first is not None and math.isfinite(first.size) and first.kind not in _EXACT and not self.is_gross
        )

    @property
    def is_gross(self) -> bool:
        """Whether the very first gradients are so far apart that no rounding comes near: no need to measure it."""
        first = self.compared.first
        gradients = first is not None and first.kind in GRADIENTS and first.step == 0
        return gradients and first is not None and first.size > _GROSS

    @property
    def may_hide_a_fault(self) -> bool:
        """Whether noise has grown so far that each step has to be judged by itself; and can be."""
        comparison = self.compared
        in_order = all(steps == tuple(range(comparison.steps)) for steps in comparison.matched)
        steps = comparison.stepped and comparison.hides_from is not None
        return comparison.same and steps and in_order and self._same_names

    def may_be_unsteady(self, single: Pair | None) -> bool:
        """Whether DataParallel may train differently each time: it has begun otherwise in single precision, or rounding
        grows far."""
        first = self.compared.first
        if first is None or single is None:
            return first is not None or self.may_hide_a_fault
        double, other = (
            [loss for line in each.traces[0].lines[: first.step + 1] for loss in line["losses"]]
            for each in (self, single)
        )
        close = (math.isclose(a, b, rel_tol=_ALIKE) for a, b in zip(double, other, strict=False))
        return len(double) != len(other) or not all(close)

    def parting_from(self, again: tuple[Prepared, Run]) -> Difference | None:
        """Where DataParallel parts from itself, by more than a race between its threads rounds."""
        first = Pair(self.left, again, self.tolerance).compared.first
        return None if first is None or first.size <= HIDING else first

    @property
    def _same_names(self) -> bool:
        reference, ranks = self.traces
        unique = all(len(set(layout.names)) == len(layout.names) for layout in reference.layouts)
        names = {each.names for each in reference.layouts}
        return unique and all({each.names for each in rank.layouts} == names for rank in ranks)

    def beside(self, nudged: Run) -> Pair:
        """The same pair with DataParallel's second run, from which natural noise is measured."""
        return replace(self, nudged=nudged)


_LAST_LINES = 5
_ALIKE = 1e-3  # losses in single precision
_EXACT = ("layout", "learning rate", "steps")
_GROSS = 1e-3  # 1e10 ulps at the first step; a model so ill-conditioned could not be trained in float32


def _trace(run: Run, rank: int) -> Trace:
    """The record of a rank; one that broke off says nothing of the steps behind it, so there is no verdict."""
    stage = run.stage
    trace = read_trace(Path(str(stage.trace)), rank)
    broken = trace.end.broken if trace.end else "the record has no end" * _came_to_its_end(run, rank)
    if broken:
        raise RunError(
            f"{stage.name}: rank {rank} ({stage.mode}, {stage.dtype}) could not be watched to its end: "
            f"{broken}; this is a fault of dp2ddp, please report it"
        )
    return trace


def _came_to_its_end(run: Run, rank: int) -> bool:
    """Whether a rank said how it ended: behind its record (boot.py). One that was killed has no end."""
    status = read_status(Path(run.stage.run_folder), rank)
    return status is not None and status.code is not None


def own_code(subject: Subject) -> OwnCode:
    """The files that are there before a conversion as well: the helpers' module is not."""
    files = {subject.script: subject.version.data, **subject.version.modules}
    mended = {path.resolve(): data for path, data in subject.mended.items()}
    digests = {
        digest(data): digest(mended[path.resolve()]) if path.resolve() in mended else content_hash(path)
        for path, data in files.items()
        if path.exists()
    }
    return OwnCode(digests, {subject.version.name: subject.script.name})


@dataclass(frozen=True)
class Outside:
    """What the outside sees of a pair."""

    stdout: TextComparison
    printing_ranks: tuple[int, ...]
    files: FilesComparison
    printed: tuple[str, str]


def judge(
    subject: Subject,
    free: Pair,
    single: Pair | None,
    server: Server,
    scratch: Path,
    aligned: Aligned | None = None,
    lockstep: Pair | None = None,
    unsteady: Difference | None = None,
) -> Verdict:
    """The verdict: `free` is judged, `single` shown beside it; `aligned` tells why `free` differs.

    With `lockstep`, what the free runs do has drowned in rounding, and that pair says whether it is the same.
    """
    pair = lockstep or free
    (expected, reference), (actual, other) = pair.left, pair.right
    double = pair.compared
    _check_devices(double, reference.stage)
    outside = _outside(subject, pair, server, scratch)
    verdict = Verdict(
        world=reference.stage.world,
        only_gradients=subject.options.only_gradients,
        float64=double,
        float32=single.compared if single else None,
        stdout=outside.stdout,
        printing_ranks=tuple(rank for rank in other.stage.ranks if rank and free.other.output(rank)),
        files=outside.files,
        codes=(free.reference.code, free.other.code),
        last_words=last_words(free.reference, _spelling(free.left[0], reference.stage.name)),
        seconds=(free.reference.seconds, free.other.seconds),
        remarks=(
            *subject.remarks,
            *((_lockstep_remark(free.compared),) if lockstep else ()),
            *_given(reference.stage),
            *written_outside((expected, actual)),
            *_notes_of_libraries(outside.files),
        ),
        lockstep=lockstep is not None,
        printed=outside.printed,
        aligned=aligned,
        hidden=tuple(_hidden_by_aligning(reference.stage)),
        met=_met(free.other),
        unshared=tuple(_unshared(reference.stage)),
        unsteady=unsteady,
        by_hashes=_by_hashes(subject, free, single),
    )
    return verdict if verdict.same else _explained(subject, pair, verdict)


def _by_hashes(subject: Subject, free: Pair, single: Pair | None) -> bool:
    """Whether the judged run alone differs, and by far: torchrun's ranks have hashes of their own, forked ones one."""
    first = free.compared.first
    has_own = subject.own_hashes and subject.torchrun and not subject.version.starts_ranks
    return (
        has_own and first is not None and first.size > _GROSS and single is not None and single.compared.same
    )


def _unshared(stage: Stage) -> Iterator[str]:
    if places := unseeded_places(Path(stage.run_folder)):
        yield (
            f"random numbers begin without a seed at {names_text(places)}: each run draws others, DataParallel's too; "
            "here both versions were given the same"
        )


def _notes_of_libraries(files: FilesComparison) -> Iterator[str]:
    if files.of_libraries:
        yield f"not judged, as it only says how a library was started: {'; '.join(files.of_libraries)}"


def last_words(run: Run, spelling: Spelling) -> tuple[str, ...]:
    """The last lines on stderr of a run that ends with an exit code; argparse says there what it misses."""
    lines = spelling.plain(run.output(0, "err")).splitlines() if run.code else []
    return tuple(line for line in lines if line.strip())[-_LAST_LINES:]


def _hidden_by_aligning(stage: Stage) -> Iterator[str]:
    """Where the aligned runs are what is judged: faults that they show to nobody."""
    if stage.aligned:
        folder = Path(stage.aligned)
        _, unlike = weights_taken(folder)
        yield from unshared(folder)
        yield from ([unlike_text(unlike)] if unlike else [])


def _given(stage: Stage) -> Iterator[str]:
    taken = weights_taken(Path(stage.aligned))[0] if stage.aligned else 0
    if taken:
        yield f"the port's ranks began with other numbers in {taken} tensors, and were given DataParallel's"


def _met(run: Run) -> bool:
    """Whether ranks make a wrapper that meets, or call a collective."""
    return any(read_calls(Path(run.stage.run_folder), rank) for rank in run.stage.ranks)


def _outside(subject: Subject, pair: Pair, server: Server, scratch: Path) -> Outside:
    (expected, _), (actual, other) = pair.left, pair.right
    double = pair.compared
    natural = double.natural.largest if double.natural else 0.0
    loose = FLOAT64.with_noise(double.noise, double.noise_floor, natural)
    texts = [
        _spelling(each, expected.stage.name).plain(run.output(0)) for each, run in (pair.left, pair.right)
    ]
    return Outside(
        compare_text(texts[0], texts[1], loose),
        tuple(rank for rank in other.stage.ranks if rank and other.output(rank)),
        _compare_files_left(
            expected, actual, server, scratch, loose, own_code(subject), subject.options.timeout
        ),
        (texts[0], texts[1]),
    )


def _lockstep_remark(free: Comparison) -> str:
    assert free.natural is not None
    return (
        f"in lockstep: from step {free.hides_from} on, rounding alone brings two right runs up to "
        f"{free.natural.largest:.0e} apart, in which a fault could hide; so ranks took over DataParallel's parameters, "
        "optimizer state and buffers after each step, and each step was judged by itself"
    )


def _explained(subject: Subject, pair: Pair, verdict: Verdict) -> Verdict:
    """With its likely causes. What goes wrong in looking for them is said, and takes nothing from the verdict."""
    try:
        causes = diagnose(_evidence(subject, pair, verdict))
        return replace(verdict, causes=with_aligned(causes, verdict.aligned) if verdict.aligned else causes)
    except Exception as error:
        remark = f"causes could not be looked for: {type(error).__name__}: {error}"
        return replace(verdict, remarks=(*verdict.remarks, remark))


def aligned_pair(subject: Subject, pair: Pair, folder: Path, server: Server, scratch: Path) -> Aligned:
    """What a pair of aligned runs says, with the causes of what still differs.

    `folder`: what they left (aligned_orders.py).
    """
    outside = _outside(subject, pair, server, scratch)
    reference, ranks = pair.traces
    compared = outside.stdout, outside.printing_ranks, outside.files
    evidence = Evidence(len(ranks), reference, ranks, pair.compared, *compared, random_only=False)
    taken, unlike = weights_taken(folder)
    return Aligned(
        pair.compared,
        unshared(folder),
        diagnose(evidence),
        unlike=unlike,
        taken=taken,
    )


def _random_only(subject: Subject, verdict: Verdict) -> bool | None:
    """Whether nothing but random numbers differs: never where both have the same ones; None: not looked behind."""
    if verdict.aligned:
        return verdict.random_only
    return False if subject.options.aligned else None


def _evidence(subject: Subject, pair: Pair, verdict: Verdict) -> Evidence:
    reference, ranks = pair.traces
    return Evidence(
        world=verdict.world,
        reference=reference,
        ranks=ranks,
        comparison=verdict.float64,
        stdout=verdict.stdout,
        printing_ranks=verdict.printing_ranks,
        files=verdict.files,
        codes=verdict.codes,
        random_only=_random_only(subject, verdict),
        unsteady=difference_text(verdict.unsteady) if verdict.unsteady else "",
        by_hashes=verdict.by_hashes,
        other_draw=verdict.aligned is not None and verdict.aligned.taken > 0 and not verdict.aligned.unlike,
        edits=_edits(subject),
    )


def _edits(subject: Subject) -> dict[str, list[str]]:
    """For a conversion by us: rule -> the lines of the original that it edited."""
    places: dict[str, list[str]] = {}
    conversion = subject.version.conversion
    for file in conversion.files if conversion else ():
        for edit in file.plan.edits if file.plan else ():
            places.setdefault(edit.code, []).append(f"{edit.file or subject.name}, {edit.place}")
    return places


def _check_devices(comparison: Comparison, stage: Stage) -> None:
    """A script that names its devices splits by their number, whatever -n says: other chunks, another training."""
    used = {len(rows) for rows in comparison.rows}
    if len(used) == 1 and used != {stage.world}:
        (count,) = used
        raise RunError(
            f"{stage.name}: DataParallel is given {counted(count, 'device')} (device_ids), "
            f"so it cannot be compared on {stage.world}; use -n {count}"
        )


def _spelling(prepared: Prepared, name: str) -> Spelling:
    """The scratch folders and the converted script under their original names."""
    folders = ((str(workspace.folder), str(workspace.original)) for workspace in prepared.workspaces)
    return Spelling((*folders, (Path(prepared.stage.name).name, Path(name).name)))


def _compare_files_left(
    expected: Prepared,
    actual: Prepared,
    server: Server,
    scratch: Path,
    tolerance: Tolerance,
    code: OwnCode,
    timeout: float | None,
) -> FilesComparison:
    both = zip(expected.workspaces, actual.workspaces, strict=True)
    pairs = [(a.left_behind(), b.left_behind()) for a, b in both]
    spellings = _spelling(expected, expected.stage.name), _spelling(actual, expected.stage.name)
    compared = [compare_files(a, b, tolerance, code, spellings) for a, b in pairs]
    tensors = [
        (path, str(a.place(path)), str(b.place(other)))
        for (a, b), (_, paths) in zip(pairs, compared, strict=True)
        for path, other in paths
    ]
    values = _compare_values(tensors, spellings, server, scratch, tolerance, timeout)
    by_lines = [each for comparison, _ in compared for each in comparison.different]
    lines = {each.path: each for each in by_lines}
    different = [each for each in by_lines if each.path not in values]
    different += [
        replace(lines.get(path, FileDifference(path, what)), what=what)
        for path, what in values.items()
        if what
    ]
    different += (each for _, left in pairs for each in written_by_many(actual, left))
    of_libraries = [path for comparison, _ in compared for path in comparison.of_libraries]
    rows = map(library_file, [*of_libraries, *(path for path, what in values.items() if not what)])
    return FilesComparison(
        sum(comparison.files for comparison, _ in compared),
        tuple(different),
        tuple(dict.fromkeys(row.words for row in rows if row)),
    )


def _compare_values(
    pairs: list[tuple[str, str, str]],
    spellings: Sequence[Spelling],
    server: Server,
    scratch: Path,
    tolerance: Tolerance,
    timeout: float | None,
) -> dict[str, str]:
    """What differs in files whose bytes do, "" for nothing; by a process that has torch."""
    if not pairs:
        return {}
    answer = scratch / "tensors.json"
    request = {
        "pairs": pairs,
        "spellings": [spelling.words for spelling in spellings],
        "allowed": tolerance.allowed,
        "floor": tolerance.floor,
        "answer": str(answer),
    }
    code = server.call("dp2ddp.comparison.checkpoints:main", request, timeout)
    if code is None:
        raise RunError(
            f"the files that torch wrote could not be compared: nothing moved for {timeout:g} seconds; a longer "
            "--timeout gives it longer"
        )
    if code != 0:
        raise RunError("the files that torch wrote could not be compared; see above")
    differences: dict[str, str] = json.loads(answer.read_text(encoding="utf-8"))
    return differences
