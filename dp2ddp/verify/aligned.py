"""A port that draws other random numbers than DataParallel: is that all?

Both were run again with the same numbers (runtime/aligned.py). Two equal runs then say that nothing else differs, if
what the port draws by itself is right: over all ranks, each epoch has to take the samples that DataParallel's takes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.trace.orders import Epoch, Order, read_batches, read_own
from dp2ddp.verify.causes.cause import Cause
from dp2ddp.verify.causes.words import names_text
from dp2ddp.verify.compare import Comparison


@dataclass(frozen=True)
class Aligned:
    """The comparison with the same random numbers on both sides."""

    comparison: Comparison
    unshared: tuple[str, ...]  # where the ranks' own orders do not share out an epoch, one sentence each
    causes: tuple[Cause, ...] = ()  # of what still differs, likeliest first

    @property
    def same(self) -> bool:
        return self.comparison.same and not self.unshared


def unshared(folder: Path) -> tuple[str, ...]:
    """`folder` is where DataParallel left its order, and the ranks theirs."""
    epochs: dict[Epoch, list[Order]] = {}
    for order in read_own(folder):
        epochs.setdefault(order.epoch, []).append(order)
    batches = read_batches(folder)
    return tuple(
        fault
        for epoch in sorted(epochs)
        for fault in _faults(epochs[epoch], tuple(itertools.chain(*batches.get(epoch, ()))))
    )


def _faults(orders: list[Order], reference: tuple[int, ...]) -> Iterator[str]:
    first = orders[0]
    length, _, epoch = first.epoch
    where = f"epoch {epoch} of the data set of {length} samples"
    whole = {order.samples for order in orders if order.parts == 1}
    if len(whole) > 1:
        yield f"{where}: each rank goes through it in an order of its own"
    # a sampler that is never told of a new epoch gives the same one again
    parts = {order.part: order.samples for order in orders if order.parts > 1}
    given = list(parts.values()) if len(parts) == first.parts else [*whole][:1] if not parts else []
    if given and reference:
        yield from (f"{where}: {fault}" for fault in _unlike(reference, given))


def _unlike(reference: tuple[int, ...], given: list[tuple[int, ...]]) -> Iterator[str]:
    """Other samples, or an order where the other has none."""
    ours, theirs = Counter(reference), Counter(sample for samples in given for sample in samples)
    missing, added = sorted((ours - theirs).elements()), sorted((theirs - ours).elements())
    spare = max(len(given) - 1, 0)  # padding and drop_last: up to one sample for each rank but one
    # DataParallel's loader may have stopped short of the end (--steps, drop_last): then more on the ranks is no fault
    added = added if ours.total() >= theirs.total() else []
    if len(missing) > spare or len(added) > spare:
        yield (
            f"the ranks leave out {_listed(missing)} of DataParallel's samples, and take beside them {_listed(added)} "
            "(a sampler with weights, another subset, ranks that do not share it out?)"
        )
    in_order = [all(list(samples) == sorted(samples) for samples in side) for side in ([reference], given)]
    if in_order == [False, True]:
        yield "the ranks take it in order, DataParallel shuffles it"
    if in_order == [True, False]:
        yield "the ranks shuffle it, DataParallel takes it in order"


def _listed(samples: Sequence[int]) -> str:
    return names_text(samples) or "none"
