"""A port that draws other random numbers than DataParallel: is that all?

Both were run again with the same numbers (perturb/aligned_runs.py). Two equal runs then say that nothing else differs,
if what the port draws by itself is right: over all ranks, each epoch has to take the samples that DataParallel's takes.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.comparison.causes.catalogue import Cause
from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.output_comparison import Outside
from dp2ddp.trace.aligned_orders import (
    Epoch,
    Order,
    Weights,
    read_batches,
    read_own,
    read_taken,
    read_trained,
)
from dp2ddp.words import names_text

_FEW = 30  # numbers, of which any two sets may go together
_SURPRISE = 5.0  # standard errors: two draws of one distribution are not further apart


@dataclass(frozen=True)
class OwnDraws:
    """What the ranks of aligned runs would have drawn by themselves."""

    unshared: tuple[str, ...] = ()  # where their own orders do not share out an epoch, one sentence each
    unlike: tuple[str, ...] = ()  # initial weights that are no other draw of DataParallel's
    taken: int = 0  # tensors that ranks began with as DataParallel did, and would not have by themselves

    @property
    def faults(self) -> tuple[str, ...]:
        """What aligned runs show to nobody, a sentence each."""
        unlike = (
            f"initial weights are no other draw of DataParallel's distribution: {names_text(self.unlike)}"
        )
        return (*self.unshared, *[unlike] * bool(self.unlike))


def own_draws(folder: Path) -> OwnDraws:
    """`folder` is where DataParallel left its order and its weights, and the ranks theirs."""
    taken = read_taken(folder)
    return OwnDraws(
        unshared(folder), tuple(each.name for each in taken if not is_other_draw(each)), len(taken)
    )


@dataclass(frozen=True)
class Aligned(Outside):
    """The comparison with the same random numbers on both sides."""

    comparison: Comparison
    drawn: OwnDraws = OwnDraws()
    causes: tuple[Cause, ...] = ()  # of what still differs, likeliest first

    @property
    def same(self) -> bool:
        """Whether nothing differs but the random numbers that the port draws."""
        return self.comparison.same and not self.drawn.faults


def is_other_draw(weights: Weights) -> bool:
    """Whether two tensors may be draws of one distribution, by their second and fourth moments and their correlation.

    Of n numbers from a normal distribution (the widest in use) the logarithm of the mean square is off by sqrt(2/n),
    and the kurtosis by sqrt(24/n).
    """
    (a_mean, a, a4), (b_mean, b, b4) = weights.reference, weights.own
    constant = [abs(square - mean * mean) <= 1e-12 * square for mean, square in ((a_mean, a), (b_mean, b))]
    if any(constant):  # zeros, ones: the same, or not drawn at all
        return weights.count == 1 and a > 0 and b > 0
    # of a difference
    size, shape = (_SURPRISE * math.sqrt(2 * spread / weights.count) for spread in (2.0, 24.0))
    alone = weights.count < _FEW or abs(weights.correlation) <= _SURPRISE / math.sqrt(weights.count)
    return alone and abs(math.log(a / b)) <= size and abs(a4 / a**2 - b4 / b**2) <= shape


def unshared(folder: Path) -> tuple[str, ...]:
    """Where the ranks' own orders do not share out an epoch, one sentence each."""
    trained = read_trained(folder)  # empty: nothing was seen in training mode, and any may be
    epochs: dict[Epoch, list[Order]] = {}
    for order in read_own(folder):
        epochs.setdefault(order.epoch, []).append(order)
    batches = read_batches(folder)
    return tuple(
        fault
        for epoch in sorted(epochs)
        for fault in _faults(
            epochs[epoch],
            tuple(itertools.chain(*batches.get(epoch, ()))),
            not trained or epoch[:2] in trained,
        )
    )


def _faults(orders: list[Order], reference: tuple[int, ...], trained: bool) -> Iterator[str]:
    """Where nothing is `trained` with it (evaluation), any order will do."""
    first = orders[0]
    length, _, epoch = first.epoch
    where = f"epoch {epoch} of the data set of {length} samples"
    whole = {order.samples for order in orders if order.parts == 1}
    if len(whole) > 1 and trained:
        yield f"{where}: each rank goes through it in an order of its own"
    # a sampler that is never told of a new epoch gives the same one again
    parts = {order.part: order.samples for order in orders if order.parts > 1}
    given = list(parts.values()) if len(parts) == first.parts else [*whole][:1] if not parts else []
    if given and reference:
        yield from (f"{where}: {fault}" for fault in _unlike(reference, given, trained))


def _unlike(reference: tuple[int, ...], given: list[tuple[int, ...]], trained: bool) -> Iterator[str]:
    """Other samples, or an order where the other has none."""
    expected, actual = Counter(reference), Counter(sample for samples in given for sample in samples)
    missing, added = sorted((expected - actual).elements()), sorted((actual - expected).elements())
    spare = max(len(given) - 1, 0)  # padding and drop_last: up to one sample for each rank but one
    # DataParallel's loader may have stopped short of the end (--steps, drop_last): then more on the ranks is no fault
    added = added if expected.total() >= actual.total() else []
    if len(missing) > spare or len(added) > spare:
        yield (
            f"the ranks leave out {names_text(missing) or 'none'} of DataParallel's samples, and take beside them "
            f"{names_text(added) or 'none'} "
            "(a sampler with weights, another subset, ranks that do not share it out?)"
        )
    if not trained:
        return
    in_order = [all(map(_is_in_order, side)) for side in ([reference], _without_padding(given))]
    if in_order == [False, True]:
        yield "the ranks take it in order, DataParallel shuffles it: shuffle=True for the sampler"
    if in_order == [True, False]:
        yield "the ranks shuffle it, DataParallel takes it in order: DistributedSampler(..., shuffle=False)"


def _without_padding(parts: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """A rank that lacks a sample at the end gets one of the first ones: 40 samples on 3 ranks end with 39, 0 and 1."""
    return [
        samples[:-1] if len(parts) > 1 and len(samples) > 2 and samples[-1] < len(parts) else samples
        for samples in parts
    ]


def _is_in_order(samples: Sequence[int]) -> bool:
    return list(samples) == sorted(samples)
