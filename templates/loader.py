"""A DataLoader whose batches rank 0 makes for all."""

import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Callable, Iterator, List

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from .batches import Packer, let_go, pack_next, try_to_lend
from .broadcast import Rank, tell_all
from .rank0 import ask_rank0
from .ranks import ranks_apart, together
from .streams import host_streams, set_host_streams


class Rank0Loader(DataLoader):  # type: ignore[type-arg]
    """A DataLoader whose workers rank 0 alone starts; all ranks get its batches. Without any, all ranks load alike.

    With a sampler or a generator of your own, take Rank0SamplerLoader.
    """

    goes_ahead = True  # where a batch is to be pinned, it is asked for early

    def __iter__(self) -> Any:
        if self.num_workers == 0 or not together():
            return super().__iter__()
        requested, self.pin_memory = self.pin_memory, False  # each rank pins its own copy
        pins = requested and self.goes_ahead and torch.cuda.is_available()
        try:
            return self.rank0_batches(super().__iter__, pins)
        finally:
            self.pin_memory = requested

    def rank0_batches(self, start: Callable[[], Any], pins: bool) -> "Rank0Batches":
        kinds = {type(self.sampler).__name__, type(self._index_sampler).__name__}
        # they draw when a loop begins, and keep nothing
        of_torch = {"RandomSampler", "SequentialSampler", "BatchSampler", "_InfiniteConstantSampler"}
        if self.generator or kinds - of_torch:
            raise RuntimeError("Rank0Loader: a sampler or generator of your own: convert the script again")
        return Rank0Batches(start, pins and not self.persistent_workers)  # which would go on a batch further


class Rank0Batches:
    """Rank 0's batches, on all ranks. Each is asked for early if it is to be pinned: by a thread, as in DataLoader."""

    def __init__(self, start: Callable[[], Any], pins: bool) -> None:
        if Packer.lends is None:
            try_to_lend()
        self.batches: List[Any] = []
        self.early: Any = None
        self.pinning: Any = None
        if pins:
            own_device = (torch.cuda.current_device(),)
            self.pinning = ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=own_device)
        ask_rank0(lambda: self.batches.append(start()))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if not together():
            raise RuntimeError("all ranks must ask for batches at once, each in its main thread")
        coming = self.early or self.receive()
        self.early = None
        batch = coming.result()
        if self.pinning:
            self.early = self.receive()
        return batch

    def receive(self) -> "Future[Any]":
        message, errors = tell_all(None if dist.get_rank() else pack_next(self.batches[0]))
        coming: Future[Any] = Future()
        if errors:
            coming.set_exception(errors.pop())
            return coming
        batch = pickle.loads(message)
        Packer.mapping = dist.barrier(Rank.host, async_op=True)
        if self.pinning:
            pinned = self.pinning.submit(pin_memory, batch)
            self.pinning.submit(let_go, Packer.mapping, Packer.memories)
            return pinned
        coming.set_result(batch)
        return coming


class Rank0SamplerLoader(Rank0Loader):
    """A Rank0Loader with a sampler, or a generator, of the script's: it may count, or draw from its own stream."""

    goes_ahead = False

    def rank0_batches(self, start: Callable[[], Any], pins: bool) -> Rank0Batches:
        batches = FollowedBatches(start, pins, self.follow_sampler())
        if self.generator is not None:  # a seed for the workers was drawn from it
            self.generator.set_state(tell_all(self.generator.get_state()))
        return batches

    def follow_sampler(self) -> Iterator[None]:
        """What rank 0's loop does to the sampler, on another rank."""
        indices = iter(self._index_sampler)
        for _ in range(self.num_workers * (self.prefetch_factor or 2)):
            next(indices, None)
        while True:
            yield
            next(indices, None)


class FollowedBatches(Rank0Batches):
    """Rank 0's batches; the other ranks ask the sampler as its loader does."""

    def __init__(self, start: Callable[[], Any], pins: bool, following: Iterator[None]) -> None:
        self.following = following if dist.get_rank() else iter(())
        self.follow()
        super().__init__(start, pins)

    def __next__(self) -> Any:
        if together():
            self.follow()
        batch = super().__next__()
        streams = tell_all(host_streams())
        if dist.get_rank():  # a sampler may draw at each batch
            set_host_streams(streams)
        return batch

    def follow(self) -> None:
        with ranks_apart(), suppress(Exception):  # rank 0 raises it for all
            next(self.following)
