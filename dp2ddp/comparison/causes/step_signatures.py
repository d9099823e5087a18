"""From gradients to weights: clipping, learning rates, the optimizer, decisions; and what no optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.causes.catalogue import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep, distance, fits, multiple
from dp2ddp.comparison.differences import AT_END, Difference, is_batchnorms
from dp2ddp.comparison.script_facts import comparable_rates
from dp2ddp.trace.records import Step
from dp2ddp.words import names_text, numbers_text

_CODES = dict(
    zip(AT_END, ("moved-by-hand", "changed-after-training", "buffers-of-another-rank"), strict=True)
)
_MOST_TIMES = 64  # a schedule that is stepped in every accumulated batch


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    yield from _counts(evidence)
    if evidence.comparison.first is not None and evidence.comparison.first.kind in AT_END:
        yield from _at_end(evidence, evidence.comparison.first)
    if not evidence.is_at_step:
        return
    here = evidence.here
    yield from _skipped(here)
    yield from _scaler(evidence.before or here)
    yield from _rates(evidence, here)
    if here.whole:
        yield from _clipping(here)
        yield from _settings(evidence, here)


def _counts(evidence: Evidence) -> Iterator[Finding]:
    comparison, counts = evidence.comparison, evidence.comparison.rank_steps
    if comparison.first is None:
        return
    by_steps = comparison.first.kind == "steps"
    what = "steps" if comparison.stepped else "backward passes"
    text = f"{what}: {numbers_text(counts)} on the ranks, {comparison.steps} under DataParallel"
    if not comparison.stepped:
        if by_steps:
            yield finding("other-computation", 0.6, text)
    elif len(set(counts)) > 1:
        yield finding("local-decision", 0.93, text)
    elif by_steps or counts[0] != comparison.steps:
        code = "fewer-steps" if counts[0] < comparison.steps else "more-steps"
        yield finding(code, 0.9 if by_steps else 0.5, text)


def _skipped(here: MatchedStep) -> Iterator[Finding]:
    expected, *actual = (step.skipped for step in here.all)
    counts = f"{numbers_text(actual)} on the ranks, {expected} under DataParallel"
    text = f"skipped before step {here.number}: {counts}"
    if len(set(actual)) > 1:
        yield finding("local-decision", 0.965, text)
    elif actual and actual[0] != expected:
        yield finding("skipped-steps", 0.965, text)


def _scaler(here: MatchedStep) -> Iterator[Finding]:
    """Losses that one side multiplies by a power of two and the other does not."""
    losses = here.losses
    if not losses.mean or not math.isfinite(losses.whole / losses.mean):
        return
    factor = losses.whole / losses.mean
    power = round(math.log2(abs(factor))) if factor else 0
    if abs(power) <= 3 or not math.isclose(factor, 2.0**power, rel_tol=1e-6):
        return
    scale = f"{2.0 ** abs(power):.6g}"
    if power < 0:
        text = f"the ranks' losses are {scale} times DataParallel's: a scale"
        yield finding("scaler-added", 0.965, text)
    else:
        yield finding("no-scaler", 0.97, f"DataParallel's loss is {scale} times the ranks': its scale")


def _rates(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    expected, *actual = (step.learning_rates for step in here.all)
    if all(_close(*comparable_rates(here.reference, step)) for step in here.ranks):
        yield from _shorter(evidence, here)
        return
    where = f"of step {here.number}"
    if len(set(actual)) > 1:
        rates = "; ".join(f"rank {rank}: {numbers_text(each)}" for rank, each in enumerate(actual))
        code = "learning-rates-apart" if evidence.before is None else "local-decision"
        yield finding(code, 0.96, f"learning rates {where}: {rates}")
        return
    text = f"learning rate {where}: {numbers_text(actual[0])}, under DataParallel {numbers_text(expected)}"
    yield from _constant_factor(evidence, actual[0], expected, text)
    times, length = _times_as_fast(evidence, here)
    if times:
        words = f"the schedule of the ranks is {times} times as fast, {length} steps long"
        yield finding(_schedule_code(evidence, times), 0.96, text, words)
    whole, own = here.reference.scheduled, here.ranks[0].scheduled
    if own != whole:
        words = f"scheduler.step was called {own} times, under DataParallel {whole}"
        yield finding(_schedule_code(evidence, own / whole if whole else 0), 0.93, text, words)
    yield finding("learning-rate", 0.85, text)


def _schedule_code(evidence: Evidence, times: float) -> str:
    return "schedule-times-world" if times == evidence.world else "schedule-times"


def _close(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-9) for x, y in zip(a, b, strict=True))


def _constant_factor(
    evidence: Evidence, actual: tuple[float, ...], expected: tuple[float, ...], text: str
) -> Iterator[Finding]:
    """From the first step on."""
    if evidence.before is not None or not expected or not expected[0]:
        return
    factor, world = actual[0] / expected[0], evidence.world
    both = zip(*(trace.lines for trace in (evidence.reference, evidence.ranks[0])), strict=False)
    alike = (i for i, (a, b) in enumerate(both) if _close(a["learning_rates"], b["learning_rates"]))
    warmed = [f"from step {step} on they are the same: a warm-up" for step in (next(alike, None),) if step]
    for name, number in (("W", world), ("1/W", 1 / world), ("the root of W", math.sqrt(world))):
        if math.isclose(factor, number, rel_tol=1e-9):
            yield finding("learning-rate-times-world", 0.97, text, f"{factor:.6g} times: {name}", *warmed)


def _shorter(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    """Rates that are the same yet: the schedule's length was counted in the batches of the ranks, which are fewer."""
    times, _ = _times_as_fast(evidence, here)
    expected, actual = (
        sum(line["scheduled"] for line in (*trace.lines, *trace.last_line))
        for trace in (evidence.reference, evidence.ranks[0])
    )
    if times and actual and round(expected / actual) == times:
        own = f"0, {times}, {2 * times} ..."
        words = f"learning rates of the ranks' steps 0, 1, 2 ... are those of DataParallel's steps {own}"
        counts = f"scheduler.step was called {actual} times, under DataParallel {expected}"
        yield finding("shorter-schedule", 0.9, words, counts)


def _times_as_fast(evidence: Evidence, here: MatchedStep) -> tuple[int, int]:
    """The m with which the ranks' rates are DataParallel's, m times as far in the schedule, and of how many steps."""
    optimizer = here.reference.optimizer
    expected, actual = (
        [tuple(line["learning_rates"]) for line in trace.lines if line["optimizer"] == optimizer]
        for trace in (evidence.reference, evidence.ranks[0])
    )
    if len(set(expected)) < 2:
        return 0, 0
    for times in range(2, min(_MOST_TIMES, len(expected))):
        pairs = [(expected[i * times], rate) for i, rate in enumerate(actual) if i * times < len(expected)]
        if len(pairs) > 1 and len(set(actual[: len(pairs)])) > 1 and all(_close(a, b) for a, b in pairs):
            return times, len(pairs)
    return 0, 0


def _clipping(here: MatchedStep) -> Iterator[Finding]:
    clips, *norms = (step.clips for step in here.all)
    text = f"norms before clipping: {numbers_text(clips)} under DataParallel; on the ranks "
    text += "; ".join(map(numbers_text, norms))
    if clips and all(len(each) == len(clips) for each in norms) and clips[0]:
        factor = norms[0][0] / clips[0]
        if factor > 1.5 and math.log2(factor).is_integer() and factor != len(here.ranks):
            words = f"{factor:.6g} times as large: the scaler's factor"
            yield finding("clip-scaled", 0.97, text, words)
    target, *raw = here.raw_gradients
    if not all(fits(distance(target, each)) for each in raw):
        return
    after, *clipped = here.gradients
    for rank, gradients in enumerate(clipped):
        factor, left = multiple(gradients, after)
        if not fits(left):
            words = f"gradients are the same before clipping, and on rank {rank} not behind it"
            yield finding("clipping", 0.93, words, text)
            return
        if not fits(abs(factor - 1)):
            words = f"after clipping gradients on rank {rank} are {factor:.6g} times DataParallel's"
            yield finding("clipping", 0.95, words, text)
            return


def _settings(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    """The same gradients and rates: what the optimizer makes of them, and what it remembers for the next step."""
    target, *gradients = here.gradients
    if not all(fits(distance(target, each)) for each in gradients):
        return
    if not all(_close(*comparable_rates(here.reference, step)) for step in here.ranks):
        return
    first, moved = evidence.comparison.first, [_moved(here, step) for step in here.ranks]
    if all(moved):
        text = (
            f"same gradients and learning rates at step {here.number}; {names_text(moved[0])} differ after it"
        )
        yield finding("optimizer-settings", 0.92, text)
    elif not any(moved) and first is not None and first.kind == "optimizer state":
        words = (
            f"same gradients and parameters at step {here.number}; the optimizer keeps another {first.name}"
        )
        yield finding("optimizer-settings", 0.92, words)


def _moved(here: MatchedStep, rank: Step) -> list[str]:
    layout = here.reference.layout
    expected, actual = (step.parameters.sketched(layout) for step in (here.reference, rank))
    scale = np.maximum(expected[:, 0], 1e-300)
    differences = np.abs(expected[:, 1:] - actual[:, 1:]).max(axis=1) / scale
    return [name for name, size in zip(layout.names, differences, strict=True) if size > 1e-10]


def _at_end(evidence: Evidence, first: Difference) -> Iterator[Finding]:
    """What no step shows: weights moved by hand, averages, what is done behind the last step."""
    norms = [f"{norm:.6g}" for norm in (first.norm, first.reference_norm)]
    if evidence.comparison.steps and first.rank:  # compared with rank 0, which is right
        where = f"on rank {first.rank} at the end: norm {norms[0]}, on rank 0 {norms[1]}"
        yield finding("ranks-part", 0.85, f"{first.name} {where}")
        return
    text = "{} at the end: norm {}, under DataParallel {}".format(first.name, *norms)
    if not evidence.comparison.steps and (names := evidence.apart_at_end("unstepped parameter")):
        words = f"no optimizer; weights differ from rank to rank at the end: {names_text(names)}"
        yield finding("not-synchronised", 0.9, words, text)
    own_buffer = first.kind == "final buffer" and not is_batchnorms(first.name)
    yield finding("buffer-of-local-rows" if own_buffer else _CODES[first.kind], 0.85, text)
