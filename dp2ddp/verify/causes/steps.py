"""From gradients to weights: clipping, learning rates, the optimizer, decisions."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence, Scene, distance, fits, multiple, projected
from dp2ddp.verify.causes.words import names_text, number_text, numbers_text

_MOST_TIMES = 64  # a schedule that is stepped in every accumulated batch


def signatures(evidence: Evidence) -> Iterator[Found]:
    yield from _counts(evidence)
    scene = evidence.scene
    if scene is None:
        return
    yield from _skipped(scene)
    yield from _scaler(evidence.before or scene)
    yield from _rates(evidence, scene)
    if scene.whole:
        yield from _clipping(scene)
        yield from _settings(evidence, scene)


def _counts(evidence: Evidence) -> Iterator[Found]:
    comparison = evidence.comparison
    counts = comparison.rank_steps
    if comparison.first is None:
        return
    told = f"steps: {numbers_text(counts)} on the ranks, {comparison.steps} under DataParallel"
    if not comparison.stepped:
        if comparison.first.kind == "steps":
            told = (
                f"backward passes: {numbers_text(counts)} on the ranks, {comparison.steps} under DataParallel"
            )
            yield found("other-computation", 0.6, told)
    elif len(set(counts)) > 1:
        yield found("local-decision", 0.93, told)
    elif comparison.first.kind == "steps":
        yield found("fewer-steps" if counts[0] < comparison.steps else "more-steps", 0.9, told)
    elif counts[0] != comparison.steps:
        yield found("fewer-steps" if counts[0] < comparison.steps else "more-steps", 0.5, told)


def _skipped(scene: Scene) -> Iterator[Found]:
    ours, theirs = scene.reference.skipped, [rank.skipped for rank in scene.ranks]
    told = (
        f"skipped before step {scene.number}: {numbers_text(theirs)} on the ranks, {ours} under DataParallel"
    )
    if len(set(theirs)) > 1:
        yield found("local-decision", 0.965, told)
    elif theirs and theirs[0] != ours:
        yield found("skipped-steps", 0.965, told)


def _scaler(scene: Scene) -> Iterator[Found]:
    """Losses that one side multiplies by a power of two and the other does not."""
    whole, parts = sum(scene.reference.losses), [sum(rank.losses) for rank in scene.ranks]
    mean = sum(parts) / max(len(parts), 1)
    if not mean or not math.isfinite(whole / mean):
        return
    factor = whole / mean
    power = round(math.log2(abs(factor))) if factor else 0
    if power < -3 and math.isclose(factor, 2.0**power, rel_tol=1e-6):
        told = f"the ranks' losses are {number_text(2.0**-power)} times DataParallel's: a scale"
        yield found("scaler-added", 0.965, told)
    if power > 3 and math.isclose(factor, 2.0**power, rel_tol=1e-6):
        yield found(
            "no-scaler", 0.97, f"DataParallel's loss is {number_text(2.0**power)} times the ranks': its scale"
        )


def _rates(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    ours, theirs = scene.reference.learning_rates, [rank.learning_rates for rank in scene.ranks]
    if all(_close(ours, each) for each in theirs):
        return
    told = f"learning rate of step {scene.number}: {numbers_text(theirs[0])}, under DataParallel {numbers_text(ours)}"
    if len(set(theirs)) > 1:
        rates = "; ".join(f"rank {rank}: {numbers_text(each)}" for rank, each in enumerate(theirs))
        code = "learning-rates-apart" if evidence.before is None else "local-decision"
        yield found(code, 0.96, f"learning rates of step {scene.number}: {rates}")
        return
    yield from _constant_factor(evidence, theirs[0], ours, told)
    yield from _faster(evidence, scene, told)
    calls = scene.ranks[0].scheduled, scene.reference.scheduled
    if calls[0] != calls[1]:
        yield found(
            "schedule-times-world" if calls[0] == evidence.world * calls[1] else "schedule-times",
            0.93,
            told,
            f"scheduler.step was called {calls[0]} times, under DataParallel {calls[1]}",
        )
    yield found("learning-rate", 0.85, told)


def _close(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-9) for x, y in zip(a, b, strict=True))


def _constant_factor(
    evidence: Evidence, theirs: tuple[float, ...], ours: tuple[float, ...], told: str
) -> Iterator[Found]:
    """From the first step on."""
    if evidence.before is not None or not ours or not ours[0]:
        return
    factor = theirs[0] / ours[0]
    world = evidence.world
    for name, number in (("W", world), ("1/W", 1 / world), ("the root of W", math.sqrt(world))):
        if math.isclose(factor, number, rel_tol=1e-9):
            yield found("learning-rate-times-world", 0.97, told, f"{number_text(factor)} times: {name}")


def _faster(evidence: Evidence, scene: Scene, told: str) -> Iterator[Found]:
    """Rates of the ranks that are DataParallel's, m times as far in the schedule."""
    optimizer = scene.reference.optimizer
    ours, theirs = (_schedule(trace.lines, optimizer) for trace in (evidence.reference, evidence.ranks[0]))
    if len(set(ours)) < 2:
        return
    for times in range(2, min(_MOST_TIMES, len(ours))):
        pairs = [(ours[i * times], rate) for i, rate in enumerate(theirs) if i * times < len(ours)]
        if len(pairs) > 1 and len(set(theirs[: len(pairs)])) > 1 and all(_close(a, b) for a, b in pairs):
            code = "schedule-times-world" if times == evidence.world else "schedule-times"
            yield found(
                code,
                0.96,
                told,
                f"the schedule of the ranks is {times} times as fast, {len(pairs)} steps long",
            )
            return


def _schedule(lines: tuple[dict[str, object], ...], optimizer: int) -> list[tuple[float, ...]]:
    return [tuple(line["learning_rates"]) for line in lines if line["optimizer"] == optimizer]  # type: ignore[arg-type]


def _clipping(scene: Scene) -> Iterator[Found]:
    layout = scene.reference.layout
    ours, theirs = scene.unclipped()
    norms = [rank.clips for rank in scene.ranks]
    clips = scene.reference.clips
    told = f"norms before clipping: {numbers_text(clips)} under DataParallel; on the ranks " + "; ".join(
        numbers_text(each) for each in norms
    )
    if clips and all(len(each) == len(clips) for each in norms) and clips[0]:
        factor = norms[0][0] / clips[0]
        if factor > 1.5 and math.log2(factor).is_integer() and factor != len(scene.ranks):
            yield found(
                "clip-scaled", 0.97, told, f"{number_text(factor)} times as large: the scaler's factor"
            )
    target = projected(ours, layout)
    if not all(fits(distance(target, projected(each, layout))) for each in theirs):
        return
    after = projected(scene.reference.gradients, layout)
    for rank, step in enumerate(scene.ranks):
        factor, left = multiple(projected(step.gradients, layout), after)
        if fits(left) and not fits(abs(factor - 1)):
            words = f"after clipping gradients on rank {rank} are {number_text(factor)} times DataParallel's"
            yield found("clipping", 0.95, words, told)
            return
        if not fits(left):
            words = f"gradients are the same before clipping, and on rank {rank} not behind it"
            yield found("clipping", 0.93, words, told)
            return


def _settings(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    layout = scene.reference.layout
    gradients = [projected(step.gradients, layout) for step in (scene.reference, *scene.ranks)]
    rates = [step.learning_rates for step in scene.ranks]
    if not all(fits(distance(gradients[0], each)) for each in gradients[1:]):
        return
    if not all(_close(scene.reference.learning_rates, each) for each in rates):
        return
    away = [_moved(scene, rank) for rank in range(len(scene.ranks))]
    names = next((each for each in away if each), [])
    if not any(away):
        yield from _state(evidence, scene)
    elif names and all(away):
        yield found(
            "optimizer-settings",
            0.92,
            f"same gradients and learning rates at step {scene.number}; {names_text(names)} differ after it",
        )


def _state(evidence: Evidence, scene: Scene) -> Iterator[Found]:
    """The optimizer remembers something else: what it makes of it comes in the next step."""
    comparison = evidence.comparison
    first = comparison.first
    if first is not None and first.kind == "optimizer state":
        yield found(
            "optimizer-settings",
            0.92,
            f"same gradients and parameters at step {scene.number}; the optimizer keeps another {first.name}",
        )


def _moved(scene: Scene, rank: int) -> list[str]:
    layout = scene.reference.layout
    ours, theirs = (step.parameters.sketched(layout) for step in (scene.reference, scene.ranks[rank]))
    scale = np.maximum(ours[:, 0], 1e-300)
    apart = np.abs(ours[:, 1:] - theirs[:, 1:]).max(axis=1) / scale
    return [name for name, size in zip(layout.names, apart, strict=True) if size > 1e-10]
