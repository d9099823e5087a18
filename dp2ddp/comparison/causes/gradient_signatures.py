"""Gradients that ranks do not share, or that are a simple function of DataParallel's; and losses that are."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from dp2ddp.comparison.causes.catalogue import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep, distance, fits, multiple
from dp2ddp.comparison.causes.model_signatures import statistics_differ
from dp2ddp.trace.digests import Doubles
from dp2ddp.trace.records import Vector
from dp2ddp.words import names_text, numbers_text, sum_text

_Pass = tuple[float, Sequence[float]]  # DataParallel's loss of a backward pass, those of the ranks
_same = functools.partial(math.isclose, rel_tol=1e-11)  # losses
_near = functools.partial(math.isclose, rel_tol=1e-6)  # factors
_MOST_COUNTED = 2000  # words, pixels: fractions of larger counts cannot be told from any number
_MOST_TRIED = 1e6  # counts that are tried
_DIGITS, _MOST_OFF = 4e-15, 1e-8  # of losses that are sums; of a count that is whole by them


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    if not evidence.is_at_step or not evidence.here.whole:
        return
    here = evidence.here
    if differing := _differing(here.unclipped()[1]):
        yield from _apart(here, differing)
        return
    if differing := _differing([rank.parameters for rank in here.ranks]):
        parted = names_text([here.reference.layout.names[i] for i in differing])
        text = f"{parted} differ from rank to rank after step {here.number}; their gradients do not"
        yield finding("ranks-part", 0.9, text)
    target, rank0, *_ = here.raw_gradients
    if not fits(distance(target, rank0)):
        yield from _scale(evidence, here, target, rank0)
        yield from _kept(evidence, target, rank0)
        if evidence.other_batch is None:
            yield from _losses(evidence, here)


# ---- ranks that do not have the same gradients


def _differing(vectors: Sequence[Vector]) -> list[int]:
    """Tensors that do not have the same bits on all ranks."""
    hashes = np.stack([each.hashes for each in vectors])
    return [int(place) for place in np.flatnonzero((hashes != hashes[0]).any(axis=0))]


def _apart(here: MatchedStep, differing: list[int]) -> Iterator[Finding]:
    names = here.reference.layout.names
    clipped = any(rank.clips for rank in here.ranks)
    if clipped and not _differing([rank.gradients for rank in here.ranks]):
        norms = "; ".join(f"rank {i}: {numbers_text(rank.clips)}" for i, rank in enumerate(here.ranks))
        yield finding("clip-before-sync", 0.97, f"norms that clip_grad_norm_ returned: {norms}")
        return
    parted = names_text([names[i] for i in differing])
    text = f"gradients of {parted} differ from rank to rank at step {here.number}"
    if lost := _lost(here, differing):
        yield finding("lost-data", 0.96, *lost)
    if len(differing) == len(names):
        target, *parts = here.raw_gradients
        joined = {"mean": np.mean(parts, axis=0), "sum": np.sum(parts, axis=0)}
        made = [
            f"their {how} is DataParallel's" for how, each in joined.items() if fits(distance(each, target))
        ]
        yield finding("not-synchronised", 0.95 if made else 0.85, text, *made[:1])
    else:
        agreeing = [name for i, name in enumerate(names) if i not in differing]
        yield finding("partly-synchronised", 0.94, text, f"the same on all ranks: {names_text(agreeing)}")


def _lost(here: MatchedStep, differing: list[int]) -> tuple[str, ...]:
    """Zeros on some ranks, DataParallel's numbers on others."""
    layout, (expected, actual) = here.reference.layout, here.unclipped()
    norms = np.stack([each.sketched(layout)[:, 0] for each in actual])
    right = expected.sketched(layout)[:, 0]
    zeros = [
        (i, rank)
        for i in differing
        for rank in range(len(actual))
        if norms[rank, i] == 0 and right[i] > 0 and any(abs(norms[:, i] - right[i]) <= 1e-9 * right[i])
    ]
    return tuple(f"the gradient of {layout.names[i]} is zero on rank {rank}" for i, rank in zeros[:2])


# ---- the same wrong gradients on all ranks


def _scale(evidence: Evidence, here: MatchedStep, target: Doubles, rank0: Doubles) -> Iterator[Finding]:
    factor, left = multiple(rank0, target)
    if not fits(left) or abs(factor) < 1e-12:
        return
    world, passes = evidence.world, len(here.reference.losses)
    figures = f"gradients are {factor:.6g} times DataParallel's"
    hidden = "; clipping hides it: behind it they are DataParallel's" * here.gradients_agree
    exact = ("exactly" if not left else f"but for {left:.0e} of their length: rounding") + hidden
    losses = tuple(_loss_figures(here, factor))
    of_passes = _near(factor, passes) or _near(factor, 1 / max(passes, 1))
    if passes > 1 and of_passes:
        yield finding("accumulation-count", 0.97, f"{figures}; {passes} backward passes make a step", exact)
    if _near(factor, world):
        yield finding("sum-for-mean", 0.96, f"{figures}: W", exact, *losses)
    elif _near(factor, 1 / world):
        yield finding("mean-for-sum", 0.96, f"{figures}: 1/W", exact, *losses)
    elif not of_passes:
        yield finding("gradient-scale", 0.9, figures, exact, *losses)


def _loss_figures(here: MatchedStep, factor: float) -> Iterator[str]:
    """Where the factor comes in: in the loss that backward starts from, or behind it.

    On one number of devices a loss that is divided by W cannot be told from one that is a share of the sum.
    """
    if not all(each.losses for each in here.all):
        return
    losses = here.losses
    for figure in (losses.mean, losses.weighted):
        if _same(figure, factor * losses.whole):
            made_of_shares = (
                ". Divided by a number that is W here, or each rank's share of a sum? Another -n tells"
            )
            yield (
                f"so is the loss that backward starts from: {figure:.6g} (mean of the ranks), under DataParallel "
                f"{losses.whole:.6g}: the factor is in the loss"
                + made_of_shares
                * _near(factor, 1 / len(losses.parts))
            )
            return
        if _same(figure, losses.whole):
            yield f"the loss that backward starts from is right ({figure:.6g}): the factor comes behind it"
            return


def _kept(evidence: Evidence, target: Doubles, rank0: Doubles) -> Iterator[Finding]:
    before = evidence.before
    if before is None or not before.whole:
        return
    for past in (before.raw_gradients[1], before.gradients[1]):
        factor, left = multiple(rank0 - target, past) if len(past) == len(target) else (0.0, 1.0)
        # whose gradients are kept: the mean of all has a part of it
        ranks = round(factor * evidence.world) if fits(left) else 0
        if 0 < ranks <= evidence.world and _near(factor * evidence.world, ranks):
            part = f"{ranks}/{evidence.world} of " * (ranks < evidence.world)
            text = f"the gradient is DataParallel's plus {part}that of step {before.number}, all but rounding"
            some = f"{ranks} of {evidence.world} ranks keep theirs"
            yield finding("gradients-kept", 0.98, text, *[some] * bool(part))
            return


def _losses(evidence: Evidence, here: MatchedStep) -> Iterator[Finding]:
    """Same rows and other gradients: how do the losses of the ranks make DataParallel's?"""
    passes = len(here.reference.losses)
    if not passes or any(len(rank.losses) != passes for rank in here.ranks):
        return
    losses, rows = here.losses, here.losses.rows
    text = f"losses of the ranks {numbers_text(losses.parts)}; DataParallel's {losses.whole:.6g}"
    if _same(losses.mean, losses.whole):
        if passes > 1:
            words = f"{passes} backward passes before the step; the losses are right: {text}"
            yield finding("part-of-accumulation", 0.9, words)
        else:
            yield finding("other-reduction", 0.7, f"the mean of the losses is right: {text}")
        return
    if _same(losses.mean, evidence.world * losses.whole):
        words = f"losses are right, W times the whole one; gradients are not: {text}"
        yield finding("other-computation", 0.7, words)
        return
    if sum(rows) and len(set(rows)) > 1 and _same(losses.weighted, losses.whole):
        words = f"rows {sum_text(rows)}: weighted by them the losses make {losses.weighted:.6g}"
        plain = f"their plain mean is {losses.mean:.6g}"
        yield finding("mean-of-means", 0.96, f"{words}, {plain}", text)
        return
    each_pass: list[_Pass] = [
        (expected, [rank.losses[place] for rank in here.ranks])
        for place, expected in enumerate(here.reference.losses)
    ]
    aligned, buffers = evidence.random_only is False, here.reference.buffers
    names = () if buffers is None else buffers.layout.names
    over_rows = any(name.endswith("running_mean") for name in names)  # the model normalises
    if not over_rows or (aligned and not statistics_differ(here)):
        yield from _counted(each_pass, text, aligned)


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
