"""Which batches the script takes from its loaders: the sampler's indices, and where the random streams stood.

Whoever loads a batch (the process that iterates, or a forked worker of it) tells so with the batch, and the script gets
the batch alone. Workers that are not forked (spawn) tell nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import xxhash
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch
from torch.utils.data._utils.pin_memory import pin_memory

from dp2ddp.runtime.perturb.sample_streams import DREW, plain_index, stream_digests
from dp2ddp.taps import Function, Taps
from dp2ddp.trace.recorder import Recorder
from dp2ddp.trace.records import Draw

# Any throughout: iterators, fetchers, indices and batches.


def observe_batches(recorder: Recorder) -> None:
    """Let the recorder see each batch that a DataLoader hands out."""
    # numbers for data sets, by first use; a conversion may build a loader anew for every epoch
    # id -> the data set, which keeps the id taken; its number
    datasets: dict[int, tuple[Any, int]] = {}

    def note(iterator: Any, loaded: _Loaded) -> None:
        dataset = iterator._dataset
        _, number = datasets.setdefault(id(dataset), (dataset, len(datasets)))
        iterable = iterator._dataset_kind == dataloader._DatasetKind.Iterable
        several: Iterable[Any] = loaded.index if iterator._auto_collation else (loaded.index,)
        indices = None if iterable else tuple(map(_plain_index, several))
        recorder.add("draws", Draw(number, indices, loaded.streams))

    def taken(original: Function, iterator: Any) -> Any:
        loaded = original(iterator)
        if not isinstance(loaded, _Loaded):
            return loaded
        recorder.quietly(note, iterator, loaded)
        return loaded.batch

    taps = Taps()
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        taps.around("fetch", _fetched, kind)
    for iterating in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        taps.around("_next_data", taken, iterating)


@dataclass(frozen=True)
class _Loaded:
    """A batch on its way to the script."""

    batch: Any
    index: Any  # as the sampler gave it
    streams: tuple[int, ...]  # digests of those that were drawn from

    def pin_memory(self) -> _Loaded:
        """torch asks things of a kind that it does not know to do so themselves."""
        return replace(self, batch=pin_memory(self.batch))  # type: ignore[no-untyped-call]


def _fetched(original: Function, fetcher: Any, index: Any) -> _Loaded:
    before = _quietly_digested()
    batch = original(fetcher, index)
    drew = vars(fetcher).pop(DREW, None) or [a != b for a, b in zip(before, _quietly_digested(), strict=True)]
    return _Loaded(batch, index, tuple(digest for digest, drawn in zip(before, drew, strict=True) if drawn))


def _plain_index(index: Any) -> int:
    """A sampler's index; of one that is no number, 63 bits of its text."""
    plain = plain_index(index)
    return plain if isinstance(plain, int) else xxhash.xxh3_64_intdigest(repr(plain).encode()) >> 1


def _quietly_digested() -> tuple[int, ...]:
    try:
        return stream_digests()
    except Exception:  # a script may have replaced any of them
        return 0, 0, 0
