"""From gradients to weights: clipping, learning rates, the optimizer, decisions."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep, distance, fits, multiple, projected
from dp2ddp.comparison.causes.words import names_text, number_text, numbers_text

_MOST_TIMES = 64  # a schedule that is stepped in every accumulated batch


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    yield from _counts(evidence)
    matched_step = evidence.matched_step
    if matched_step is None:
        return
    yield from _skipped(matched_step)
    yield from _scaler(evidence.before or matched_step)
    yield from _rates(evidence, matched_step)
    if matched_step.whole:
        yield from _clipping(matched_step)
        yield from _settings(evidence, matched_step)


def _counts(evidence: Evidence) -> Iterator[Finding]:
    comparison = evidence.comparison
    counts = comparison.rank_steps
    if comparison.first is None:
        return
    text = f"steps: {numbers_text(counts)} on the ranks, {comparison.steps} under DataParallel"
    if not comparison.stepped:
        if comparison.first.kind == "steps":
            text = (
                f"backward passes: {numbers_text(counts)} on the ranks, {comparison.steps} under DataParallel"
            )
            yield finding("other-computation", 0.6, text)
    elif len(set(counts)) > 1:
        yield finding("local-decision", 0.93, text)
    elif comparison.first.kind == "steps":
        yield finding("fewer-steps" if counts[0] < comparison.steps else "more-steps", 0.9, text)
    elif counts[0] != comparison.steps:
        yield finding("fewer-steps" if counts[0] < comparison.steps else "more-steps", 0.5, text)


def _skipped(matched_step: MatchedStep) -> Iterator[Finding]:
    expected, actual = matched_step.reference.skipped, [rank.skipped for rank in matched_step.ranks]
    text = (
        f"skipped before step {matched_step.number}: {numbers_text(actual)} on the ranks, "
        f"{expected} under DataParallel"
    )
    if len(set(actual)) > 1:
        yield finding("local-decision", 0.965, text)
    elif actual and actual[0] != expected:
        yield finding("skipped-steps", 0.965, text)


def _scaler(matched_step: MatchedStep) -> Iterator[Finding]:
    """Losses that one side multiplies by a power of two and the other does not."""
    whole, parts = sum(matched_step.reference.losses), [sum(rank.losses) for rank in matched_step.ranks]
    mean = sum(parts) / max(len(parts), 1)
    if not mean or not math.isfinite(whole / mean):
        return
    factor = whole / mean
    power = round(math.log2(abs(factor))) if factor else 0
    if power < -3 and math.isclose(factor, 2.0**power, rel_tol=1e-6):
        text = f"the ranks' losses are {number_text(2.0**-power)} times DataParallel's: a scale"
        yield finding("scaler-added", 0.965, text)
    if power > 3 and math.isclose(factor, 2.0**power, rel_tol=1e-6):
        yield finding(
            "no-scaler", 0.97, f"DataParallel's loss is {number_text(2.0**power)} times the ranks': its scale"
        )


def _rates(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    expected, actual = (
        matched_step.reference.learning_rates,
        [rank.learning_rates for rank in matched_step.ranks],
    )
    if all(_close(expected, each) for each in actual):
        yield from _shorter(evidence, matched_step)
        return
    rates = f"{numbers_text(actual[0])}, under DataParallel {numbers_text(expected)}"
    text = f"learning rate of step {matched_step.number}: {rates}"
    if len(set(actual)) > 1:
        rates = "; ".join(f"rank {rank}: {numbers_text(each)}" for rank, each in enumerate(actual))
        code = "learning-rates-apart" if evidence.before is None else "local-decision"
        yield finding(code, 0.96, f"learning rates of step {matched_step.number}: {rates}")
        return
    yield from _constant_factor(evidence, actual[0], expected, text)
    times, length = _times_as_fast(evidence, matched_step)
    if times:
        code = "schedule-times-world" if times == evidence.world else "schedule-times"
        words = f"the schedule of the ranks is {times} times as fast, {length} steps long"
        yield finding(code, 0.96, text, words)
    calls = matched_step.ranks[0].scheduled, matched_step.reference.scheduled
    if calls[0] != calls[1]:
        yield finding(
            "schedule-times-world" if calls[0] == evidence.world * calls[1] else "schedule-times",
            0.93,
            text,
            f"scheduler.step was called {calls[0]} times, under DataParallel {calls[1]}",
        )
    yield finding("learning-rate", 0.85, text)


def _close(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-9) for x, y in zip(a, b, strict=True))


def _constant_factor(
    evidence: Evidence, actual: tuple[float, ...], expected: tuple[float, ...], text: str
) -> Iterator[Finding]:
    """From the first step on."""
    if evidence.before is not None or not expected or not expected[0]:
        return
    factor = actual[0] / expected[0]
    world = evidence.world
    for name, number in (("W", world), ("1/W", 1 / world), ("the root of W", math.sqrt(world))):
        if math.isclose(factor, number, rel_tol=1e-9):
            yield finding("learning-rate-times-world", 0.97, text, f"{number_text(factor)} times: {name}")


def _shorter(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    """Rates that are the same yet: the schedule's length was counted in the batches of the ranks, which are fewer."""
    times, _ = _times_as_fast(evidence, matched_step)
    expected, actual = (
        sum(line["scheduled"] for line in (*trace.lines, *trace.last_line))
        for trace in (evidence.reference, evidence.ranks[0])
    )
    if times and actual and round(expected / actual) == times:
        own = f"0, {times}, {2 * times} ..."
        words = f"learning rates of the ranks' steps 0, 1, 2 ... are those of DataParallel's steps {own}"
        counts = f"scheduler.step was called {actual} times, under DataParallel {expected}"
        yield finding("shorter-schedule", 0.9, words, counts)


def _times_as_fast(evidence: Evidence, matched_step: MatchedStep) -> tuple[int, int]:
    """The m with which the ranks' rates are DataParallel's, m times as far in the schedule, and of how many steps."""
    optimizer = matched_step.reference.optimizer
    expected, actual = (
        _schedule(trace.lines, optimizer) for trace in (evidence.reference, evidence.ranks[0])
    )
    if len(set(expected)) < 2:
        return 0, 0
    for times in range(2, min(_MOST_TIMES, len(expected))):
        pairs = [(expected[i * times], rate) for i, rate in enumerate(actual) if i * times < len(expected)]
        if len(pairs) > 1 and len(set(actual[: len(pairs)])) > 1 and all(_close(a, b) for a, b in pairs):
            return times, len(pairs)
    return 0, 0


def _schedule(lines: tuple[dict[str, object], ...], optimizer: int) -> list[tuple[float, ...]]:
    return [tuple(line["learning_rates"]) for line in lines if line["optimizer"] == optimizer]  # type: ignore[arg-type]


def _clipping(matched_step: MatchedStep) -> Iterator[Finding]:
    layout = matched_step.reference.layout
    expected, actual = matched_step.unclipped()
    norms = [rank.clips for rank in matched_step.ranks]
    clips = matched_step.reference.clips
    text = f"norms before clipping: {numbers_text(clips)} under DataParallel; on the ranks " + "; ".join(
        numbers_text(each) for each in norms
    )
    if clips and all(len(each) == len(clips) for each in norms) and clips[0]:
        factor = norms[0][0] / clips[0]
        if factor > 1.5 and math.log2(factor).is_integer() and factor != len(matched_step.ranks):
            yield finding(
                "clip-scaled", 0.97, text, f"{number_text(factor)} times as large: the scaler's factor"
            )
    target = projected(expected, layout)
    if not all(fits(distance(target, projected(each, layout))) for each in actual):
        return
    after = projected(matched_step.reference.gradients, layout)
    for rank, step in enumerate(matched_step.ranks):
        factor, left = multiple(projected(step.gradients, layout), after)
        if fits(left) and not fits(abs(factor - 1)):
            words = f"after clipping gradients on rank {rank} are {number_text(factor)} times DataParallel's"
            yield finding("clipping", 0.95, words, text)
            return
        if not fits(left):
            words = f"gradients are the same before clipping, and on rank {rank} not behind it"
            yield finding("clipping", 0.93, words, text)
            return


def _settings(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    layout = matched_step.reference.layout
    gradients = [projected(step.gradients, layout) for step in (matched_step.reference, *matched_step.ranks)]
    rates = [step.learning_rates for step in matched_step.ranks]
    if not all(fits(distance(gradients[0], each)) for each in gradients[1:]):
        return
    if not all(_close(matched_step.reference.learning_rates, each) for each in rates):
        return
    moved = [_moved(matched_step, rank) for rank in range(len(matched_step.ranks))]
    names = next((each for each in moved if each), [])
    if not any(moved):
        yield from _state(evidence, matched_step)
    elif names and all(moved):
        yield finding(
            "optimizer-settings",
            0.92,
            f"same gradients and learning rates at step {matched_step.number}; {names_text(names)} differ after it",
        )


def _state(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    """The optimizer remembers something else: what it makes of it comes in the next step."""
    comparison = evidence.comparison
    first = comparison.first
    if first is not None and first.kind == "optimizer state":
        yield finding(
            "optimizer-settings",
            0.92,
            f"same gradients and parameters at step {matched_step.number}; the optimizer keeps another {first.name}",
        )


def _moved(matched_step: MatchedStep, rank: int) -> list[str]:
    layout = matched_step.reference.layout
    expected, actual = (
        step.parameters.sketched(layout) for step in (matched_step.reference, matched_step.ranks[rank])
    )
    scale = np.maximum(expected[:, 0], 1e-300)
    differences = np.abs(expected[:, 1:] - actual[:, 1:]).max(axis=1) / scale
    return [name for name, size in zip(layout.names, differences, strict=True) if size > 1e-10]
