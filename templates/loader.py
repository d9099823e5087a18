"""A DataLoader whose batches rank 0 makes for all."""

import pickle
from contextlib import suppress
from typing import Any, Callable, Iterator

import torch.distributed as dist
from torch.utils.data import DataLoader

from .batches import Lending, pack, try_to_lend
from .broadcast import tell_all
from .rank0 import ask_rank0
from .ranks import ranks_apart, together


class Rank0Loader(DataLoader):  # type: ignore[type-arg]
    """A DataLoader whose workers rank 0 alone starts; all ranks get its batches. Without any, all ranks load alike."""

    def __iter__(self) -> Any:
        start = super().__iter__
        if self.num_workers == 0 or not together():
            return start()
        if Lending.works is None:
            try_to_lend()
        self.pin_memory = False  # ranks map what workers have made
        batches = Rank0Batches(start, self.follow_sampler() if dist.get_rank() else iter(()))
        if self.generator is not None:  # a seed for the workers was drawn from it
            self.generator.set_state(tell_all(self.generator.get_state()))
        return batches

    def follow_sampler(self) -> Iterator[None]:
        """What rank 0's loop does to the sampler, on another rank: it may count, or draw from its own generator."""
        indices = iter(self._index_sampler)
        for _ in range(self.num_workers * (self.prefetch_factor or 2)):
            next(indices, None)
        while True:
            yield
            next(indices, None)


class Rank0Batches:
    """Rank 0's batches, on all ranks."""

    def __init__(self, start: Callable[[], Iterator[Any]], following: Iterator[None]) -> None:
        self.following, self.batches = following, iter(())
        self.ask(lambda: setattr(self, "batches", start()))

    def __iter__(self) -> "Rank0Batches":
        return self

    def __next__(self) -> Any:
        return pickle.loads(self.ask(lambda: pack(next(self.batches))))

    def ask(self, work: Callable[[], Any]) -> Any:
        if not together():
            raise RuntimeError("all ranks must ask for batches at once, each in its main thread")
        with ranks_apart(), suppress(Exception):  # rank 0 raises it for all
            next(self.following)
        return ask_rank0(work)
