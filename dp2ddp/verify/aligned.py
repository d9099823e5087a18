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
    def epoch_of_data(self) -> tuple[int, int, int]:
        return self.length, self.ordinal, self.epoch


def unshared(folder: Path) -> tuple[str, ...]:
    """`folder` is where DataParallel left its order, and the ranks theirs."""
    epochs: dict[tuple[int, int, int], list[_Order]] = {}
    for order in _own_orders(folder):
        epochs.setdefault(order.epoch_of_data, []).append(order)
    return tuple(fault for key in sorted(epochs) for fault in _faults(epochs[key]))


def _own_orders(folder: Path) -> Iterator[_Order]:
    for file in sorted(folder.glob("own-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            length, ordinal, epoch, parts, part, samples = json.loads(line)
            yield _Order(length, ordinal, epoch, parts, part, tuple(samples))


def _faults(orders: list[_Order]) -> Iterator[str]:
    shared = [order for order in orders if order.parts > 1]
    whole = {order.samples for order in orders if order.parts == 1}
    first = orders[0]
    where = f"epoch {first.epoch} of the data set of {first.length} samples"
    if len(whole) > 1:
        yield f"{where}: each rank goes through it in an order of its own"
    # a sampler that is never told of a new epoch gives the same one again
    parts = {order.part: order for order in shared}
    if shared and len(parts) == first.parts:
        taken = Counter(sample for order in parts.values() for sample in order.samples)
        missing = sorted(set(range(first.length)) - set(taken))
        again = sum(taken.values()) - len(taken)
        # padding and drop_last are up to one sample for each rank but one
        if len(missing) >= first.parts or again >= first.parts:
            yield f"{where}: the ranks take {again} samples more than once, and leave out {_listed(missing)}"


def _listed(samples: Iterable[int]) -> str:
    known = list(samples)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return ", ".join(map(str, known[:_SHOWN])) + more if known else "none"
