"""Loading a rank's share: chunk r of every batch that the whole run would have loaded."""

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from .arguments import sizes_of_chunks, with_empty_ranks
from .loaded import LoadedRows, await_forward
from .parted import rows_of_loaded
from .process import all_ranks_are_here, exchange, own_rank, random_streams, set_random_streams, world_size
from .rows import is_nested, join_leaf, put_together, take_apart


def shard(make: "Callable[..., DataLoader[Any]]", *args: Any, **kwargs: Any) -> "DataLoader[Any]":
    """The loader that make(*args, **kwargs) gives, for one rank: of each batch it loads only this rank's rows.

    The script sees whole batches (RowsOnRanks). All ranks draw from the same random streams, so that they agree on
    every batch. Rank r takes the rows that torch.chunk(batch, world)[r] would hold: ceil(rows / world) of them, so
    the last are fewer, or none. In everything else (len, dataset, sampler, batch_size) it answers as the whole
    loader. In threads, child processes and where rank 0 is alone it is the whole loader.
    """
    loader, world = make(*args, **kwargs), world_size()
    if world == 1:
        return loader
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise TypeError(
            "shard needs a loader of batches from a map-style data set: neither an IterableDataset nor "
            "batch_size=None. Let every rank load the whole batches instead: leave the loader as it is."
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise TypeError(
            f"shard does not know how {type(loader).__name__} iterates. Let every rank load the whole "
            "batches instead: leave the loader as it is."
        )
    return ShardedLoader(loader, own_rank(), world)


class ShardedLoader(DataLoader[Any]):
    """A DataLoader with another's settings that loads one rank's rows of each of its batches."""

    differs_by_rank = True  # nothing that replicas fill, see shared_state.py

    def __init__(self, loader: "DataLoader[Any]", rank: int, world: int) -> None:
        vars(self).update(vars(loader))
        self.whole = loader
        self.share = Share(rank, world, own_streams=loader.num_workers == 0)
        self.worker_init_fn = WorkerStart(loader.worker_init_fn, rank)
        self.in_order = True  # or else the ranks' batches could come in different orders

    @property
    def _index_sampler(self) -> "RankIndices":
        """Where DataLoader's iterators find the indices of a batch, see torch/utils/data/dataloader.py."""
        return RankIndices(self.batch_sampler, self.share)

    def __iter__(self) -> Any:
        if not all_ranks_are_here():
            return iter(self.whole)
        self.share.sizes = deque()
        return RankBatches(super().__iter__(), self.share, len(self))


class Share:
    """One rank's share of a loader, and the numbers of rows of all ranks in the batches that are on their way."""

    def __init__(self, rank: int, world: int, own_streams: bool) -> None:
        self.rank = rank
        self.world = world
        self.streams = LoadingStreams(rank) if own_streams else None
        self.sizes: deque[tuple[int, ...]] = deque()


class RankIndices:
    """The whole loader's batches of indices, each cut to this rank's chunk."""

    def __init__(self, batches: Any, share: Share) -> None:
        self.batches = batches
        self.share = share

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Any]]:
        return self.indices(self.share.sizes)

    def indices(self, sizes: "deque[tuple[int, ...]]") -> Iterator[list[Any]]:
        """The indices to load; how many of them are which rank's goes to sizes."""
        world = self.share.world
        for batch in map(list, self.batches):
            rows = own_rows(batch, self.share.rank, world)
            sizes.append(with_empty_ranks(sizes_of_chunks(len(batch), world), world))
            if self.share.streams:
                self.share.streams.enter()  # from here to the end of RankBatches.__next__
            yield rows or batch[:1]  # a rank without rows learns from one row what a batch looks like


def own_rows(batch: list[Any], rank: int, world: int) -> list[Any]:
    """Chunk r of a batch as torch.chunk cuts it: 5 rows over 4 ranks are 2, 2, 1, none."""
    size = -(-len(batch) // world)
    return batch[rank * size : (rank + 1) * size]


class RankBatches:
    """One pass over a sharded loader."""

    differs_by_rank = True

    def __init__(self, batches: Iterator[Any], share: Share, length: int) -> None:
        self.batches = batches
        self.streams = share.streams
        self.sizes = share.sizes
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> "RankBatches":
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self.batches)
        finally:
            if self.streams:
                self.streams.leave()
        return see_whole(batch, self.sizes.popleft())


class LoadingStreams:
    """Random streams for what a rank's rows draw while they are loaded in the rank's own process.

    The script's streams must not move by it, since the other ranks load other rows. And the ranks must not
    draw the same numbers, or the first row of each would get the same augmentation.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.own: dict[str, Any] = {}
        self.script: dict[str, Any] = {}

    def enter(self) -> None:
        """Draw from the rank's own streams from now on."""
        self.script = random_streams()
        if self.own:
            set_random_streams(self.own)
        else:
            vary_streams(self.rank)

    def leave(self) -> None:
        """Draw from the script's streams again."""
        if self.script:
            self.own = random_streams()
            set_random_streams(self.script)
            self.script = {}


class WorkerStart:
    """A worker_init_fn after which the workers of each rank draw numbers of their own."""

    def __init__(self, start: Callable[[int], None] | None, rank: int) -> None:
        self.start = start
        self.rank = rank

    def __call__(self, worker: int) -> None:
        if self.start is not None:
            self.start(worker)
        vary_streams(self.rank)


def vary_streams(rank: int) -> None:
    """Lead the host's random streams another way on each rank; rank 0 stays on its way."""
    if rank == 0:
        return
    torch.default_generator.manual_seed(int(torch.randint(2**62, ())) + rank)
    random.seed(random.getrandbits(62) + rank)
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        numpy.random.seed((int(numpy.random.randint(2**31)) + rank) % 2**32)


def without_rows(batch: Any) -> Any:
    """The batch with none of its rows: tensors and arrays of length 0, empty lists, in the same form."""
    if isinstance(batch, dict):
        return type(batch)((key, without_rows(value)) for key, value in batch.items())
    if is_nested(batch):
        parts = [without_rows(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch[:0] if isinstance(batch, (list, tuple)) or hasattr(batch, "shape") and batch.shape else batch


def see_whole(batch: Any, sizes: Sequence[int]) -> Any:
    """This rank's rows of a batch, of which rank r has sizes[r], as the whole batch that the script sees.

    Tensors become RowsOnRanks. Lists of other things (file names, say) and arrays are joined at once. A rank
    without rows brings a batch of one, to show what it looks like.
    """
    leaves: list[Any] = []
    form = take_apart(batch, leaves)
    tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0}
    parted = {name: part_loaded(leaf, sizes) for name, leaf in tensors.items()}  # one twice is one, too
    others = [leaf for leaf in leaves if id(leaf) not in parted]
    own = others if sizes[own_rank()] else [without_rows(leaf) for leaf in others]
    joined = map(join_leaf, zip(*exchange(own), strict=True)) if others else iter(())
    return put_together(form, [parted[id(leaf)] if id(leaf) in parted else next(joined) for leaf in leaves])


def part_loaded(own: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """One tensor of a batch."""
    size = sizes[own_rank()]
    if own.shape[0] != (size or 1):
        raise ValueError(
            f"{size or 1} samples have become a tensor of {own.shape[0]} rows, so that its rows cannot be told. "
            "Let rank 0 load the batches: share(DataLoader, ...) in place of shard(DataLoader, ...)."
        )
    loaded = LoadedRows(own[:size], sizes)
    await_forward(loaded)
    return rows_of_loaded(loaded)
