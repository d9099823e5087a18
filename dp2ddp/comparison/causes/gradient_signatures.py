"""Gradients that are a simple function of DataParallel's, or losses that are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.causes.batch_signatures import different_batch
from dp2ddp.comparison.causes.cause import Finding, finding
from dp2ddp.comparison.causes.evidence import (
    Array,
    Evidence,
    MatchedStep,
    distance,
    fits,
    multiple,
    projected,
)
from dp2ddp.comparison.causes.model_signatures import statistics_differ
from dp2ddp.comparison.causes.words import number_text, numbers_text, sum_text

_Pass = tuple[float, Sequence[float]]  # DataParallel's loss of a backward pass, those of the ranks
_MOST_COUNTED = 2000  # words, pixels: fractions of larger counts cannot be told from any number
_MOST_TRIED = 1e6  # counts that are tried
_DIGITS, _MOST_OFF = 4e-15, 1e-8  # of losses that are sums; of a count that is whole by them


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    matched_step = evidence.matched_step
    if matched_step is None or not matched_step.whole:
        return
    expected, actual = matched_step.unclipped()
    target, rank0 = (projected(each, matched_step.reference.layout) for each in (expected, actual[0]))
    if fits(distance(target, rank0)):
        return
    if all(np.array_equal(actual[0].hashes, each.hashes) for each in actual[1:]):
        yield from _scale(evidence, matched_step, target, rank0)
        yield from _kept(evidence, target, rank0)
        if different_batch(evidence) is None:
            yield from _losses(evidence, matched_step)


def _scale(evidence: Evidence, matched_step: MatchedStep, target: Array, rank0: Array) -> Iterator[Finding]:
    factor, left = multiple(rank0, target)
    if not fits(left) or abs(factor) < 1e-12:
        return
    world, passes = evidence.world, len(matched_step.reference.losses)
    figures = f"gradients are {number_text(factor)} times DataParallel's"
    exact = ("exactly" if not left else f"but for {left:.0e} of their length: rounding") + _hidden(
        matched_step
    )
    losses = tuple(_loss_figures(matched_step, factor))
    if passes > 1 and (_near(factor, passes) or _near(factor, 1 / passes)):
        yield finding("accumulation-count", 0.97, f"{figures}; {passes} backward passes make a step", exact)
    if _near(factor, world):
        yield finding("sum-for-mean", 0.96, f"{figures}: W", exact, *losses)
    elif _near(factor, 1 / world):
        yield finding("mean-for-sum", 0.96, f"{figures}: 1/W", exact, *losses)
    elif not _near(factor, passes) and not _near(factor, 1 / passes):
        yield finding("gradient-scale", 0.9, figures, exact, *losses)


def _loss_figures(matched_step: MatchedStep, factor: float) -> Iterator[str]:
    """Where the factor comes in: in the loss that backward starts from, or behind it.

    On one number of devices a loss that is divided by W cannot be told from one that is a share of the sum.
    """
    if not matched_step.reference.losses or not all(rank.losses for rank in matched_step.ranks):
        return
    whole, parts = sum(matched_step.reference.losses), [sum(rank.losses) for rank in matched_step.ranks]
    rows = [sum(sum(each) for each in rank.rows) for rank in matched_step.ranks]
    mean = sum(parts) / len(parts)
    weighted = sum(part * count for part, count in zip(parts, rows, strict=True)) / (sum(rows) or 1)
    for figure in (mean, weighted):
        if _same(figure, factor * whole):
            text = (
                f"so is the loss that backward starts from: {number_text(figure)} (mean of the ranks), under "
            )
            text += f"DataParallel {number_text(whole)}: the factor is in the loss"
            if _near(factor, 1 / len(parts)):
                text += (
                    ". Divided by a number that is W here, or each rank's share of a sum? Another -n tells"
                )
            yield text
            return
        if _same(figure, whole):
            yield f"the loss that backward starts from is right ({number_text(figure)}): the factor comes behind it"
            return


def _hidden(matched_step: MatchedStep) -> str:
    layout = matched_step.reference.layout
    expected, actual = (
        projected(step.gradients, layout) for step in (matched_step.reference, matched_step.ranks[0])
    )
    return (
        "; clipping hides it: behind it they are DataParallel's" if fits(distance(expected, actual)) else ""
    )


def _near(factor: float, number: float) -> bool:
    return abs(factor - number) < 1e-6 * number


def _kept(evidence: Evidence, target: Array, rank0: Array) -> Iterator[Finding]:
    before = evidence.before
    if before is None or not before.whole:
        return
    layout = before.reference.layout
    for _, vector in (("", before.unclipped()[1][0]), ("clipped ", before.ranks[0].gradients)):
        past = projected(vector, layout)
        if len(past) == len(target) and past.any() and fits(distance(rank0 - target, past)):
            yield finding(
                "gradients-kept",
                0.98,
                f"the gradient is DataParallel's plus that of step {before.number}, all but rounding",
            )
            return


def _losses(evidence: Evidence, matched_step: MatchedStep) -> Iterator[Finding]:
    """Same rows and other gradients: how do the losses of the ranks make DataParallel's?"""
    if not matched_step.reference.losses or any(
        len(r.losses) != len(matched_step.reference.losses) for r in matched_step.ranks
    ):
        return
    whole = sum(matched_step.reference.losses)
    parts = [sum(rank.losses) for rank in matched_step.ranks]
    rows = [sum(sum(each) for each in rank.rows) for rank in matched_step.ranks]
    losses = f"losses of the ranks {numbers_text(parts)}; DataParallel's {number_text(whole)}"
    mean = sum(parts) / len(parts)
    if _same(mean, whole):
        yield from _right_losses(matched_step, losses)
        return
    if _same(mean, evidence.world * whole):
        yield finding(
            "other-computation", 0.7, f"losses are right, W times the whole one; gradients are not: {losses}"
        )
        return
    if sum(rows) and len(set(rows)) > 1:
        weighted = sum(part * count for part, count in zip(parts, rows, strict=True)) / sum(rows)
        if _same(weighted, whole):
            yield finding(
                "mean-of-means",
                0.96,
                f"rows {sum_text(rows)}: weighted by them the losses make {number_text(weighted)}, "
                f"their plain mean is {number_text(mean)}",
                losses,
            )
            return
    passes = [
        (expected, [rank.losses[place] for rank in matched_step.ranks])
        for place, expected in enumerate(matched_step.reference.losses)
    ]
    if len(passes) > 1 and _mean_of(passes[0], rows) and not _mean_of(passes[-1], rows):
        yield finding(
            "between-passes",
            0.8,
            f"{len(passes)} backward passes before the step: the ranks' losses of the first make DataParallel's, those "
            "of the last do not",
            losses,
        )
    aligned = evidence.random_only is False
    if not _normalises_over_rows(matched_step) or (aligned and not statistics_differ(matched_step)):
        yield from _counted(passes, losses, aligned)


def _mean_of(losses: _Pass, rows: Sequence[int]) -> bool:
    """Whether DataParallel's loss is the mean of the ranks', each with its rows."""
    whole, parts = losses
    share = rows if sum(rows) else [1] * len(parts)
    return _same(sum(part * count for part, count in zip(parts, share, strict=True)) / sum(share), whole)


def _counted(passes: Sequence[_Pass], losses: str, aligned: bool) -> Iterator[Finding]:
    """DataParallel's losses as means of the ranks' with weights that are shares of counts, 13/31 and 18/31."""
    if all(not _same(min(parts), max(parts)) and max(parts) < whole for whole, parts in passes):
        weight = 0.62 if aligned else 0.55  # other dropout may do the same
        yield finding("pairs-across-ranks", weight, f"{losses}: all of the ranks' are smaller")
    elif all(min(parts) < whole < max(parts) for whole, parts in passes):
        counts = counted(*passes[0])
        weights = f"weighted {', '.join(map(str, counts))} they make it" if counts else "it lies between them"
        yield finding("local-counts", 0.9 if counts else 0.38, losses, weights)


def counted(whole: float, parts: Sequence[float]) -> tuple[int, ...]:
    """The smallest counts with which the mean of `parts` is `whole`; () if no small ones do.

    sum(count * (part - whole)) is 0, so the last count follows from the others. All small ones of those are tried: as
    many as tell a match from chance at 15 digits, which is counts up to 2000 on two ranks, 1000 on three, 100 on four.
    """
    offsets = np.array(parts) - whole
    order = np.argsort(np.abs(offsets))  # the largest divides
    most = min(_MOST_COUNTED, int(_MOST_TRIED ** (1 / (len(parts) - 1))))
    tried = np.indices((most,) * (len(parts) - 1), dtype=np.int32).reshape(len(parts) - 1, -1) + 1
    last = -(offsets[order[:-1]] @ tried) / offsets[order[-1]]
    nearest = np.rint(last)
    total = tried.sum(axis=0) + nearest
    uncertain = total * _DIGITS * max(abs(whole), float(np.abs(offsets).max())) / abs(offsets[order[-1]])
    right = (
        (nearest >= 1)
        & (nearest <= _MOST_COUNTED)
        & (np.abs(last - nearest) <= np.minimum(uncertain, _MOST_OFF))
    )
    if not right.any():
        return ()
    best = np.flatnonzero(right)[np.argmin(total[right])]
    counts = np.zeros(len(parts), dtype=int)
    counts[order] = [*tried[:, best], nearest[best]]
    return tuple(counts.tolist())


def _right_losses(matched_step: MatchedStep, losses: str) -> Iterator[Finding]:
    if len(matched_step.reference.losses) > 1:
        yield finding(
            "part-of-accumulation",
            0.9,
            f"{len(matched_step.reference.losses)} backward passes before the step; the losses are right: {losses}",
        )
    else:
        yield finding("other-reduction", 0.7, f"the mean of the losses is right: {losses}")


def _normalises_over_rows(matched_step: MatchedStep) -> bool:
    buffers = matched_step.reference.buffers
    return buffers is not None and any(name.endswith("running_mean") for name in buffers.layout.names)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-11 * max(abs(a), abs(b))
