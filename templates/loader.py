"""A DataLoader whose batches rank 0 makes for all."""

import pickle
from contextlib import suppress
from typing import Any, Callable, Iterator, List

import torch.distributed as dist
from torch.utils.data import DataLoader

from .batches import Packer, pack_next, try_to_lend
from .broadcast import Rank, tell_all
from .rank0 import ask_rank0
from .ranks import ranks_apart, together
from .streams import host_streams, set_host_streams


class Rank0Loader(DataLoader):  # type: ignore[type-arg]
    """A DataLoader whose workers rank 0 alone starts; all ranks get its batches. Without any, all ranks load alike.

    With a sampler or a generator of your own, take Rank0SamplerLoader.
    """

    def __iter__(self) -> Any:
        if self.num_workers == 0 or not together():
            return super().__iter__()
        self.pin_memory = False  # ranks map what workers have made
        return self.rank0_batches(super().__iter__)

    def rank0_batches(self, start: Callable[[], Any]) -> "Rank0Batches":
        kinds = {type(self.sampler).__name__, type(self._index_sampler).__name__}
        # they draw when a loop begins, and keep nothing
        of_torch = {"RandomSampler", "SequentialSampler", "BatchSampler", "_InfiniteConstantSampler"}
        if self.generator or kinds - of_torch:
            raise RuntimeError("Rank0Loader: a sampler or generator of your own: convert the script again")
        return Rank0Batches(start)


class Rank0Batches:
    """Rank 0's batches, on all ranks."""

    def __init__(self, start: Callable[[], Any]) -> None:
        if Packer.lends is None:
            try_to_lend()
        self.batches: List[Any] = []
        ask_rank0(lambda: self.batches.append(start()))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if not together():
            raise RuntimeError("all ranks must ask for batches at once, each in its main thread")
        message, errors = tell_all(None if dist.get_rank() else pack_next(self.batches[0]))
        if errors:
            raise errors.pop()
        batch = pickle.loads(message)
        Packer.mapping = dist.barrier(Rank.host, async_op=True)
        return batch


class Rank0SamplerLoader(Rank0Loader):
    """A Rank0Loader with a sampler, or a generator, of the script's: it may count, or draw from its own stream."""

    def rank0_batches(self, start: Callable[[], Any]) -> Rank0Batches:
        batches = FollowedBatches(start, self.follow_sampler())
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

    def __init__(self, start: Callable[[], Any], following: Iterator[None]) -> None:
        self.following = following if dist.get_rank() else iter(())
        self.follow()
        super().__init__(start)

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
