"""Did both train the same? (reference trace, a trace of each rank, tolerance) -> Comparison; pure.

Gradients come before parameters: the step whose gradients part is the step to look at, parameters part after it.
Rank 0 is compared number by number. Another rank with the same hashes is the same to the bit; one with other hashes is
compared by its sketch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dp2ddp.comparison.differences import (
    Difference,
    array_difference,
    ending_differences,
    named_difference,
    rank_differences,
    without_partner,
)
from dp2ddp.comparison.matching import Matching, match, matched_steps, plain_name, starts
from dp2ddp.comparison.noise import AT_END, Findings, Noise, NoiseAtEnd
from dp2ddp.comparison.script_facts import casts_on_one_side, number_differences
from dp2ddp.comparison.series import Series, series_of
from dp2ddp.comparison.step_table import SoFar, StepTable, StepTensors
from dp2ddp.comparison.tolerance import FACTOR, HIDING, Tolerance
from dp2ddp.trace.records import FinalKind, Trace, Unchecked
from dp2ddp.words import names_text, ranks_text

__all__ = ["Comparison", "Difference", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What comparing two runs gave, for one number of devices and one precision."""

    steps: int  # of the reference
    rank_steps: tuple[int, ...]  # those that stand for one of the reference's, and any too many
    largest: Difference | None  # over gradients and parameters of all steps and ranks that were compared
    first: Difference | None  # at the first step with one that is not allowed: the one nearest to the cause
    also: tuple[Difference, ...]  # what else differs at that step
    identical_steps: int  # steps with the same bits in every gradient and parameter, on every rank
    identical_buffers: bool
    so_far: SoFar = SoFar()  # of what is nothing but rounding
    ranks_that_agree: tuple[tuple[int, ...], ...] = ()  # at the first difference: ranks with the same bits
    rows: tuple[tuple[int, ...], ...] = ()  # of each wrapped forward under DataParallel
    rank_rows: tuple[tuple[int, ...], ...] = ()  # of each forward in training, where their sums differ
    remarks: tuple[str, ...] = ()
    series: Series | None = field(default=None, compare=False)  # what charts draw; arrays have no plain ==
    worst: Difference | None = None  # the largest one in terms of natural noise
    natural: Noise | None = field(default=None, compare=False)  # measured; None where nothing asked for it
    matched: tuple[tuple[int, ...], ...] = ()  # of each rank: the steps that stand for DataParallel's
    unstepped_losses: int = 0  # calls of backward that no step followed; of a script without optimizer, all
    stepped: bool = True  # or else no optimizer takes a step, and these are backward passes
    lost_from: int | None = None  # the step from which on DataParallel's losses are NaN or infinite
    parts: tuple[str, ...] = ()  # what was compared and judged: gradient, parameter, loss, buffer
    unchecked: tuple[Unchecked, ...] = ()  # what the script asks for, and virtual devices leave out

    @property
    def noise_ratio(self) -> float | None:
        """Difference / natural noise, where it is largest; None if no second DataParallel run was needed."""
        return self.worst.noise_ratio if self.worst and self.natural else None

    @property
    def hides_from(self) -> int | None:
        """The first step at which a fault could hide in natural noise."""
        if self.natural is None:
            return None
        blurred = np.flatnonzero(FACTOR * np.array(self.natural.so_far["gradient"]) > HIDING)
        return int(blurred[0]) if blurred.size else None

    @property
    def noise_at_end(self) -> NoiseAtEnd | None:
        """The natural noise behind the last step, and what it hides; None where it was not measured."""
        if self.natural is None:
            return None
        gradients, parameters, losses = (
            self.natural.of(kind, AT_END) for kind in ("gradient", "parameter", "loss")
        )
        return NoiseAtEnd(gradients, parameters, losses, self.noise_ratio, FACTOR, self.hides_from)

    @property
    def same(self) -> bool:
        """Whether no difference is larger than what is allowed."""
        return self.first is None

    @property
    def identical(self) -> bool:
        """Whether every gradient, parameter and buffer has the same bits on every rank."""
        return self.same and self.identical_steps == self.steps and self.identical_buffers


def compare(
    reference: Trace,
    ranks: Sequence[Trace],
    tolerance: Tolerance,
    nudged: Trace | None = None,
    port: bool = False,
) -> Comparison:
    """Compare every step of every rank with the reference, up to the first step with a difference that is not allowed.

    reference: the record of DataParallel's run.
    ranks: the record of each rank of the DDP run, by rank.
    tolerance: for the precision of both runs (tolerance.py has the numbers and where they come from).
    nudged: DataParallel once more, moved by an ulp, from which natural noise is measured; None: one ulp is the noise.
    port: the DDP version was made by hand; the losses of its ranks are their own, and are not judged.

    Pure: reads records, and nothing else. Raises TraceError where a record is missing or torn.
    """
    natural = Noise.between(reference, nudged, tolerance.epsilon) if nudged is not None else None
    findings = Findings(tolerance.epsilon, natural or Noise(tolerance.epsilon))
    matchings = [match(reference, rank) for rank in ranks]
    matched = tuple(matching.steps for matching in matchings)
    casts = [each.difference for each in casts_on_one_side(reference, ranks, matched)] if port else []
    begun = [  # parameters that are not the same before an optimizer's first step
        Difference("initial state", size, start.step, rank, name)
        for start in starts(reference, ranks, matched)
        for rank, own in start.ranks
        for name, size in [named_difference(start.expected, own, together=False, only=start.own)]
        if size
    ]
    table, rows = StepTable(tolerance, port, StepTensors(reference.initial)), []
    moved = nudged.steps() if nudged is not None else iter(())
    together = zip(*map(matched_steps, ranks, matched), strict=False)
    for row in table.rows(reference.steps(), together, moved):
        rows.append(row)
        findings.natural.add(row)
        if row.rows and not findings.bad:
            findings.add(*(start for start in begun if start.step == row.step))
            if not findings.bad:
                findings.judge(row)
            findings.add(*(cast for cast in casts if cast.step == row.step))
            table.is_over = bool(findings.bad)
    counts = tuple(len(rank) - matching.left_out for rank, matching in zip(ranks, matchings, strict=True))
    for rank, count in enumerate(counts):
        if count != len(reference) and not findings.bad:
            words = f"{count} instead of {len(reference)}" + " backward passes" * reference.unstepped
            findings.bad.append(Difference("steps", np.inf, min(len(reference), count), rank, words))
    if not findings.bad:
        findings.add(*casts)
    buffers = not findings.bad and _compare_buffers(findings, tolerance, reference, ranks[0], port)
    ending = not findings.bad and _compare_ending(findings, tolerance, reference, ranks, port)
    causes, end = findings.causes, reference.end
    remarks = [*_remarks(reference, ranks, matchings)]
    if port and len(reference) and not findings.bad:
        remarks += _apart_at_end(ranks)
    return Comparison(
        steps=len(reference),
        rank_steps=counts,
        largest=findings.largest,
        first=causes[0] if causes else None,
        also=tuple(causes[1:]),
        identical_steps=findings.identical_steps,
        identical_buffers=buffers and ending,
        so_far=findings.so_far,
        ranks_that_agree=findings.agreeing,
        rows=reference.rows(),
        rank_rows=_rows_of_ranks(reference, ranks) if port else (),
        remarks=tuple(remarks),
        series=series_of(reference, ranks, rows, natural),
        worst=findings.worst,
        natural=natural,
        matched=matched,
        unstepped_losses=len(end.losses) if end else 0,
        stepped=not reference.unstepped,
        lost_from=lost_from(reference),
        parts=_parts(reference, port),
        unchecked=tuple(Unchecked[name] for name in end.unchecked) if end else (),
    )


def _parts(reference: Trace, port: bool) -> tuple[str, ...]:
    """What the same verdict is about; losses of a port's ranks are their own."""
    kinds = () if reference.final is None else reference.final.kinds.tolist()
    have_gradients = [bool(reference.layouts[line["layout"]].names) for line in reference.lines]
    has_losses = any(line["losses"] for line in (*reference.lines, *reference.last_line))
    parts = {
        "gradient": any(have_gradients),
        "parameter": any(kind != FinalKind.BUFFER for kind in kinds) or bool(len(reference)),
        "loss": has_losses and (not port or (reference.unstepped and not all(have_gradients))),
        "buffer": FinalKind.BUFFER in kinds or bool(reference.buffers()),
    }
    return tuple(part for part, is_compared in parts.items() if is_compared)


def _compare_buffers(
    findings: Findings, tolerance: Tolerance, reference: Trace, rank0: Trace, port: bool
) -> bool:
    """On rank 0 only: replica 0's buffers are the ones that survive under DataParallel."""
    expected, actual = (
        {plain_name(name): values for name, values in trace.buffers().items()} for trace in (reference, rank0)
    )
    last = max(len(reference) - 1, 0)
    if port and not _parameter_names(reference) & _parameter_names(rank0):  # it may rename everything
        expected = {name: values for name, values in expected.items() if name in actual}
        actual = {name: actual[name] for name in expected}
    if expected.keys() != actual.keys():
        name = min(expected.keys() ^ actual.keys())
        findings.add(Difference("buffer", np.inf, last, 0, f"{name} (only on one side)"))
        return False
    room = tolerance.room_behind(findings.so_far.noise)  # a running mean follows a noisy bias
    for name in expected:
        size = array_difference(expected[name], actual[name])
        findings.add(Difference("buffer", size, last, 0, name, room=room))
    return all(np.array_equal(expected[name], actual[name]) for name in expected)


def _compare_ending(
    findings: Findings, tolerance: Tolerance, reference: Trace, ranks: Sequence[Trace], port: bool
) -> bool:
    """What comes after the last step; whether it is the same to the last bit."""
    so_far = findings.so_far
    room = tolerance.room_behind(so_far.noise)
    floor = tolerance.with_noise(so_far.noise, so_far.noise_floor).floor
    for rank in ranks:
        if reference.end is not None and rank.end is not None:
            expected, steps = reference.end.losses, len(reference)
            scale = max([so_far.loss_scale, *(abs(loss) for loss in expected if np.isfinite(loss))])
            losses = number_differences("loss", expected, rank.end.losses, steps, rank.rank, scale)
            findings.add(*(dataclasses.replace(each, judged=not port) for each in losses))
    tensors = [
        each
        for rank in (ranks[:1] if len(reference) else ranks)
        for each in ending_differences(reference, rank, floor)
    ]
    if len(reference) and not port:  # a port may leave averages to rank 0
        tensors += [each for rank in ranks[1:] for each in rank_differences(ranks[0], rank, floor)]
    for name in () if len(reference) else without_partner(reference.final, ranks[0].final):
        words = f"{name} (rank 0 has none of that name)"
        findings.add(Difference("unstepped parameter", np.inf, 0, 0, words))
    findings.add(*(dataclasses.replace(each, room=room) for each in tensors))
    return not any(each.size for each in tensors)


def _parameter_names(trace: Trace) -> set[str]:
    return {plain_name(name) for layout in trace.layouts for name in layout.names}


def _remarks(reference: Trace, ranks: Sequence[Trace], matchings: Sequence[Matching]) -> Iterator[str]:
    """What a reader of the verdict has to know, a sentence each."""
    if left_out := max(matching.left_out for matching in matchings):
        yield (
            f"{left_out} steps of optimizers that hold other parameters than DataParallel's are left out "
            "(the shards of ZeroRedundancyOptimizer?)"
        )
    for who, trace in [("DataParallel", reference), *((f"rank {trace.rank}", trace) for trace in ranks)]:
        if not trace.end:
            yield f"{who}: the script ended without a word; its record may be short"
    expected, *actual = (_first_rows(trace) for trace in (reference, *ranks))
    if len(ranks) > 1 and expected and all(each == expected for each in actual):  # right, and no faster
        yield f"each rank trains on the whole batch ({len(expected)} rows): none is faster than one process alone"
    if (first := lost_from(reference)) is not None:
        yield (
            f"from step {first} on DataParallel's losses are NaN or infinite: from there on no difference can be seen"
        )
    if names := without_partner(reference.final, ranks[0].final):
        yield (
            f"{len(names)} parameters that no optimizer steps were not compared: rank 0 has none of that name "
            f"({names[0]}, ...)"
        )
    yield from _other_limits(reference, ranks[0])


def lost_from(reference: Trace) -> int | None:
    """The step from which on every loss is NaN or infinite; so are the gradients then, and any two are alike."""
    known = [
        not losses or any(map(np.isfinite, losses)) for losses in (line["losses"] for line in reference.lines)
    ]
    first = len(known) - next((back for back, is_known in enumerate(reversed(known)) if is_known), len(known))
    return first if first < len(known) else None


def _rows_of_ranks(reference: Trace, ranks: Sequence[Trace]) -> tuple[tuple[int, ...], ...]:
    """The rows of each rank in each forward in training, if steps have other sums of rows than DataParallel's."""
    expected, *actual = (
        [tuple(sum(rows) for training, rows, *_ in line["forwards"] if training) for line in trace.lines]
        for trace in (reference, *ranks)
    )
    # of bare modules nothing is known
    steps = [step for step in zip(expected, *actual, strict=False) if all(step)]
    if all(sum(whole) == sum(map(sum, own)) for whole, *own in steps):
        return ()
    return tuple(
        together for _, *own in steps if len({*map(len, own)}) == 1 for together in zip(*own, strict=True)
    )


def _apart_at_end(ranks: Sequence[Trace]) -> Iterator[str]:
    """An average that rank 0 alone moves, and saves, is right; one that each rank moves in its own way may not be."""
    differences = [each for rank in ranks[1:] for each in rank_differences(ranks[0], rank, 0.0)]
    if differences:
        names = list(dict.fromkeys(each.name for each in differences))
        others = sorted({each.rank for each in differences})
        unstepped = all(each.kind == "unstepped parameter" for each in differences)
        yield (
            f"other values at the end on {ranks_text(others)} than on rank 0 in {names_text(names)}"
            f"{' (which no optimizer steps)' * unstepped}: "
            "rank 0's were compared, so rank 0 alone is to use and save them"
        )


def _first_rows(trace: Trace) -> list[int]:
    """Digests of what the first forward in training was given."""
    step = next(trace.steps(), None)
    forwards = () if step is None else step.forwards
    return sorted(next((each.firsts or each.digests for each in forwards if each.training), ()))


def _other_limits(reference: Trace, rank0: Trace) -> Iterator[str]:
    """A clipping that no gradient was large enough for proves nothing of its limit."""
    expected, actual = (
        sorted({limit for line in trace.lines for limit in line["limits"]}) for trace in (reference, rank0)
    )
    if expected != actual:
        texts = (" and ".join(f"{limit:g}" for limit in limits) or "nothing" for limits in (actual, expected))
        yield (
            f"torch's clip_grad_* is given {next(texts)} as its limit, under DataParallel {next(texts)}; "
            "gradients that neither touches do not show what that changes"
        )
