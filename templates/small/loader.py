"""A DataLoader whose batches rank 0 makes for all."""

import functools
from itertools import count, islice
from typing import Any, Callable, Iterable, Iterator, List

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from .batches import share_batch
from .broadcast import tell_all
from .ranks import ranks_apart, together
from .streams import host_streams, same_streams, set_host_streams
from .trees import map_tensors


class Rank0Loader(DataLoader):  # type: ignore[type-arg]
    """A DataLoader whose workers rank 0 alone starts; all ranks get its batches. Without any, all ranks load alike."""

    def __iter__(self) -> Any:
        make = super().__iter__
        if self.num_workers == 0 or not together():
            return make()
        batches = Rank0Batches(self.follow_sampler if dist.get_rank() else make)
        if self.generator is not None:  # a seed for the workers was drawn from it
            self.generator.set_state(tell_all(self.generator.get_state()))
        return batches

    def follow_sampler(self) -> Iterator[Any]:
        """What rank 0's loop does to the sampler, on another rank: it may count, or draw from its own generator."""
        indices = iter(self._index_sampler)
        for _ in islice(indices, self.num_workers * (self.prefetch_factor or 2)):
            pass
        return (next(indices, None) for _ in count())


def iterate_on_rank0(iterable: Iterable[Any]) -> Iterator[Any]:
    """What rank 0 gets of an iterable, on all ranks: threads and processes hand over in an order of their own."""
    if not together():
        return iter(iterable)
    copy = functools.partial(map_tensors, torch.clone)  # who has filled a tensor may do so again
    return Rank0Batches(lambda: iter(()) if dist.get_rank() else map(copy, iterable))


class Rank0Batches:
    """Rank 0's iterator, on all ranks: its items, its errors, and where its random numbers stand behind each."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self.batches: Iterator[Any] = iter(())
        self.do_on_rank0(lambda: setattr(self, "batches", make()))

    def __iter__(self) -> "Rank0Batches":
        return self

    def __next__(self) -> Any:
        return self.do_on_rank0(lambda: next(self.batches))

    def do_on_rank0(self, work: Callable[[], Any]) -> Any:
        """Rank 0's answer counts, or its error (the end is one); other ranks work to follow the sampler."""
        if not together():
            raise RuntimeError("all ranks must ask for batches at once, each in its main thread")
        news: List[Any] = [None, None, None]
        before = host_streams()
        try:
            with ranks_apart():
                news[0] = work()
        except Exception as error:
            news[1] = error
        after = host_streams()
        moved = news[2] = None if same_streams(before, after) else after
        news = share_batch(news)
        if moved or news[2]:
            set_host_streams(news[2] or before)
        if news[1] is not None:
            raise news.pop(1)  # no frame may hold it: it holds the frames, and they the workers
        return news[0]
