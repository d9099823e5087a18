"""A DataLoader whose batches rank 0 makes for all."""

from itertools import islice
from typing import Any, Iterable, Iterator, List

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from .batches import share_batch
from .broadcast import tell_all
from .ranks import ranks_apart, together
from .streams import host_streams, same_streams, set_host_streams


class Rank0Loader(DataLoader):  # type: ignore[type-arg]
    """A DataLoader whose workers rank 0 alone starts; all ranks get its batches. Without workers, all ranks load alike."""

    def __iter__(self) -> Any:
        if self.num_workers == 0 or not together():
            return super().__iter__()
        if dist.get_rank() == 0:
            with ranks_apart():
                batches: Iterator[Any] = super().__iter__()
        else:
            batches = self.follow_sampler()
        set_host_streams(tell_all(host_streams()))  # making the iterator draws a seed for the workers
        return hand_out(batches)

    def follow_sampler(self) -> Iterator[None]:
        """What rank 0's loop does to the sampler, done on another rank: it may count, or draw from its own generator."""
        indices = iter(self._index_sampler)
        if self.generator is not None:
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        ahead = [*islice(indices, self.num_workers * (self.prefetch_factor or 2))]
        return advance(ahead, indices)


def advance(ahead: List[Any], indices: Iterator[Any]) -> Iterator[None]:
    """Take one more from the sampler for each batch, as a DataLoader with workers does."""
    while ahead:
        ahead = [*ahead[1:], *islice(indices, 1)]
        yield None


def iterate_on_rank0(iterable: Iterable[Any]) -> Iterator[Any]:
    """What rank 0 gets of an iterable, on all ranks: threads and processes hand over in an order of their own."""
    return hand_out(iter(iterable if dist.get_rank() == 0 else ()))


def hand_out(batches: Iterator[Any]) -> Iterator[Any]:
    """Rank 0's batches on every rank, where its random streams stand behind each, and its errors."""
    while True:
        batch: List[Any] = []
        error, before = None, host_streams()
        try:
            with ranks_apart():
                batch = [*islice(batches, 1)]
        except Exception as raised:
            error = raised
        after = host_streams()
        news = None if same_streams(before, after) else after, error
        batch, (streams, error) = share_batch(batch, news)
        if streams:
            set_host_streams(streams)
        if error:
            raise error
        if not batch:
            return
        yield batch[0]
