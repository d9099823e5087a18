"""Loading a rank's share: chunk r of every batch that the whole run would have loaded."""

import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from .process import own_rank, random_streams, set_random_streams, world_size
from .rows import gather_rows


def shard(loader: "DataLoader[Any]", rank: int | None = None, world: int | None = None) -> "DataLoader[Any]":
    """The same loader for one rank: it draws the same batches, and loads only this rank's rows of each.

    All ranks draw from the same random streams, so that they agree on every batch. Rank r takes the rows that
    torch.chunk(batch, world)[r] would hold: ceil(rows / world) of them, so the last are fewer, or none. Of a batch
    in which the rank has no rows it gets one with no rows in it. In everything else (len, dataset, sampler,
    batch_size) it answers as the whole loader.
    """
    world = world_size() if world is None else world
    rank = own_rank() if rank is None else rank
    if world == 1:
        return loader
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise TypeError(
            "shard needs a loader of batches from a map-style data set: neither an IterableDataset nor "
            "batch_size=None. Let every rank load the whole batches instead: leave the loader as it is."
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise TypeError(
            f"shard does not know how {type(loader).__name__} iterates. Let every rank load the whole batches "
            "instead: leave the loader as it is."
        )
    return ShardedLoader(loader, rank, world)


class ShardedLoader(DataLoader[Any]):
    """A DataLoader with another's settings that loads one rank's rows of each of its batches."""

    def __init__(self, loader: "DataLoader[Any]", rank: int, world: int) -> None:
        vars(self).update(vars(loader))
        self.rank = rank
        self.world = world
        self.worker_init_fn = RankStreams(loader.worker_init_fn, rank)
        self.sizes: deque[int] = deque()
        self.in_order = True  # the ranks' batches must come in the same order
        self.loading_streams: dict[str, Any] = {}

    @property
    def _index_sampler(self) -> Any:
        """What DataLoader's iterators take their batches of indices from; see torch/utils/data/dataloader.py."""
        return RankIndices(self)

    def __iter__(self) -> Any:
        self.sizes.clear()
        return RankBatches(self, super().__iter__())


class RankIndices:
    """The batches of indices, of which each is cut to this rank's chunk."""

    def __init__(self, loader: ShardedLoader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader.batch_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self.loader.batch_sampler or ():
            rows = own_rows(list(batch), self.loader.rank, self.loader.world)
            self.loader.sizes.append(len(rows))
            yield rows or list(batch)[:1]  # one row of another rank shows what a batch looks like


def own_rows(batch: list[Any], rank: int, world: int) -> list[Any]:
    """Chunk r of a batch as torch.chunk cuts it: 5 rows over 4 ranks are 2, 2, 1, none."""
    size = -(-len(batch) // world)
    return batch[rank * size : (rank + 1) * size]


class RankBatches:
    """An iterator over this rank's batches that leaves the script's random streams as the others find them.

    With loader workers nothing is drawn here. Without, what this rank's rows draw (augmentation) comes from
    streams of its own, since the other ranks' rows may draw more or less.
    """

    def __init__(self, loader: ShardedLoader, batches: Iterator[Any]) -> None:
        self.loader = loader
        self.batches = batches

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> "RankBatches":
        return self

    def __next__(self) -> Any:
        batch = next(self.batches)
        return batch if self.loader.sizes.popleft() else without_rows(batch)
