"""A port that draws other random numbers than DataParallel: is that all?

Both were run again with the same numbers (runtime/aligned.py). Two equal runs then say that nothing else differs, if
what the port draws by itself is right: over all ranks, each epoch has to take the samples that DataParallel's takes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.verify.compare import Comparison

_SHOWN = 5  # samples that are named
REFERENCE = "reference.jsonl"  # runtime/aligned.py

_Epoch = tuple[int, int, int]  # length of the data set, its number among those of that length, epoch


@dataclass(frozen=True)
class Aligned:
    """The comparison with the same random numbers on both sides."""

    comparison: Comparison
    unshared: tuple[str, ...]  # where the ranks' own orders do not share out an epoch, one sentence each

    @property
    def same(self) -> bool:
        return self.comparison.same and not self.unshared


@dataclass(frozen=True)
class _Order:
    """What a sampler on a rank would have given itself."""

    length: int
    ordinal: int
    epoch: int
    parts: int
    part: int
    samples: tuple[int, ...]

    @property
    def epoch_of_data(self) -> _Epoch:
        return self.length, self.ordinal, self.epoch


def unshared(folder: Path) -> tuple[str, ...]:
    """`folder` is where DataParallel left its order, and the ranks theirs."""
    epochs: dict[_Epoch, list[_Order]] = {}
    for order in _own_orders(folder):
        epochs.setdefault(order.epoch_of_data, []).append(order)
    reference = _reference(folder)
    return tuple(fault for key in sorted(epochs) for fault in _faults(epochs[key], reference.get(key, ())))


def _reference(folder: Path) -> dict[_Epoch, tuple[int, ...]]:
    """What DataParallel took in each epoch."""
    found: dict[_Epoch, tuple[int, ...]] = {}
    for line in (folder / REFERENCE).read_text(encoding="utf-8").splitlines():
        length, ordinal, epoch, batch = json.loads(line)
        key = length, ordinal, epoch
        found[key] = (*found.get(key, ()), *batch)
    return found


def _own_orders(folder: Path) -> Iterator[_Order]:
    for file in sorted(folder.glob("own-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            length, ordinal, epoch, parts, part, samples = json.loads(line)
            yield _Order(length, ordinal, epoch, parts, part, tuple(samples))


def _faults(orders: list[_Order], reference: tuple[int, ...]) -> Iterator[str]:
    first = orders[0]
    where = f"epoch {first.epoch} of the data set of {first.length} samples"
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


def _listed(samples: Iterable[int]) -> str:
    known = list(samples)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return ", ".join(map(str, known[:_SHOWN])) + more if known else "none"
