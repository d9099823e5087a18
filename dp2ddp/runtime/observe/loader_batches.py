"""Which batches the script takes from its loaders: the sampler's indices, and where the random streams stood.

The indices are those of the process that iterates; a worker tells of its streams through memory that it shares with
that process. Workers that are not forked (spawn) tell nothing.
"""

from __future__ import annotations

import mmap
import struct
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import xxhash
from torch.utils.data import dataloader, get_worker_info
from torch.utils.data._utils import fetch

from dp2ddp.runtime.perturb.sample_streams import DREW, plain_index, stream_digests
from dp2ddp.taps import Function, Taps
from dp2ddp.trace.recorder import Recorder
from dp2ddp.trace.records import Draw

# Any throughout: iterators, fetchers, indices and data sets.
Streams = tuple[int, ...]  # digests of those that were drawn from
# number of the batch among the worker's, from 1; digests of the streams, 0: not drawn
_SLOT = struct.Struct("<QQQQ")


def observe_batches(recorder: Recorder) -> None:
    """Let the recorder see each batch that a DataLoader hands out."""
    watch = _LoaderObserver(recorder)
    single, several = dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter
    taps = Taps()
    taps.after("_next_index", watch.next_index, dataloader._BaseDataLoaderIter)
    taps.after("_next_data", partial(watch.taken, watch.alone), single)
    taps.around("__init__", watch.with_channel, several)
    taps.around("_try_put_index", watch.sent, several)
    taps.after("_next_data", partial(watch.taken, watch.from_worker), several)
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        taps.around("fetch", watch.fetched, kind)


class _LoaderObserver:
    """Follows each batch from the sampler to the script."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        # numbers for data sets, by first use; a conversion may build a loader anew for every epoch
        # id -> the data set, which keeps the id taken; its number
        self._datasets: dict[int, tuple[Any, int]] = {}
        # of the loader whose workers are being started; in them: their own
        self._channel: _Channel | None = None
        self._loaded = 0  # batches that this worker has loaded
        self._here: Streams = ()  # of the batch that this process has loaded last

    # ---- in the process that iterates

    def next_index(self, index: Any, iterator: Any) -> None:
        self._recorder.quietly(lambda: setattr(self._pass(iterator), "index", index))

    def with_channel(self, original: Function, iterator: Any, loader: Any) -> None:
        """Memory for what the workers, which it starts, will tell."""
        before, self._channel = self._channel, None
        self._recorder.quietly(self._open_channel, iterator, loader)
        try:
            original(iterator, loader)
        finally:
            self._channel = before

    def _open_channel(self, iterator: Any, loader: Any) -> None:
        self._channel = _Channel(loader.num_workers, 2 * (loader.prefetch_factor or 2) + 2)
        self._pass(iterator).channel = self._channel

    def sent(self, original: Function, iterator: Any) -> None:
        task = iterator._send_idx
        original(iterator)
        if iterator._send_idx > task:
            self._recorder.quietly(self._note_sent, iterator, task)

    def _note_sent(self, iterator: Any, task: int) -> None:
        known = self._pass(iterator)
        if task == 0:  # a new epoch, perhaps with the same workers
            known.tasks.clear()
        worker = iterator._task_info[task][0]
        known.sent[worker] = known.sent.get(worker, 0) + 1
        known.tasks[task] = (known.index, worker, known.sent[worker])

    def taken(self, find: Callable[[Any], tuple[Any, Streams]], data: Any, iterator: Any) -> None:
        self._recorder.quietly(self._note_taken, iterator, find)

    def _note_taken(self, iterator: Any, find: Callable[[Any], tuple[Any, Streams]]) -> None:
        index, streams = find(iterator)
        iterable = iterator._dataset_kind == dataloader._DatasetKind.Iterable
        several: Iterable[Any] = index if iterator._auto_collation else (index,)
        indices = None if iterable else tuple(map(_plain_index, several))
        dataset = iterator._dataset
        _, number = self._datasets.setdefault(id(dataset), (dataset, len(self._datasets)))
        self._recorder.add("draws", Draw(number, indices, streams))

    def alone(self, iterator: Any) -> tuple[Any, Streams]:
        return self._pass(iterator).index, self._here

    def from_worker(self, iterator: Any) -> tuple[Any, Streams]:
        known = self._pass(iterator)
        gone = [task for task in known.tasks if task not in iterator._task_info]
        index, worker, number = known.tasks[max(gone)]  # others: of workers that have come to their end
        for task in gone:
            del known.tasks[task]
        return index, known.channel.read(worker, number) if known.channel else ()

    def _pass(self, iterator: Any) -> _Pass:
        return self._passes.setdefault(iterator, _Pass())

    # ---- in the process that loads

    def fetched(self, original: Function, fetcher: Any, index: Any) -> Any:
        before = _quietly_digested()
        data = original(fetcher, index)
        drew = vars(fetcher).pop(DREW, None) or [
            a != b for a, b in zip(before, _quietly_digested(), strict=True)
        ]
        self._note_loaded([digest * drawn for digest, drawn in zip(before, drew, strict=True)])
        return data

    def _note_loaded(self, digests: Sequence[int]) -> None:
        """0 for a stream that was not drawn from."""
        worker = get_worker_info()
        if worker is None:
            self._here = tuple(filter(None, digests))
            return
        self._loaded += 1
        if self._channel is not None:
            self._channel.write(worker.id, self._loaded, digests)


class _Pass:
    """What is under way in one iterator."""

    def __init__(self) -> None:
        self.index: Any = None  # the newest of the sampler
        self.tasks: dict[int, tuple[Any, int, int]] = {}  # task -> index, worker, number among the worker's
        self.sent: dict[int, int] = {}  # worker -> tasks
        self.channel: _Channel | None = None


class _Channel:
    """A ring of slots for each worker, in memory that forked processes share."""

    def __init__(self, workers: int, slots: int) -> None:
        self._slots = slots
        self._memory = mmap.mmap(-1, workers * slots * _SLOT.size)

    def write(self, worker: int, number: int, digests: Sequence[int]) -> None:
        _SLOT.pack_into(self._memory, self._place(worker, number), number, *digests)

    def read(self, worker: int, number: int) -> Streams:
        written, *digests = _SLOT.unpack_from(self._memory, self._place(worker, number))
        return tuple(filter(None, digests)) if written == number else ()

    def _place(self, worker: int, number: int) -> int:
        return int((worker * self._slots + number % self._slots) * _SLOT.size)


def _plain_index(index: Any) -> int:
    """A sampler's index; of one that is no number, 63 bits of its text."""
    plain = plain_index(index)
    return plain if isinstance(plain, int) else xxhash.xxh3_64_intdigest(repr(plain).encode()) >> 1


def _quietly_digested() -> Streams:
    try:
        return stream_digests()
    except Exception:  # a script may have replaced any of them
        return 0, 0, 0
