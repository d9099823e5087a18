"""Workers of a loader, shared out among the ranks: each batch is loaded once, as one process would load it."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils import fetch, pin_memory

from .feed import pack, receive, send
from .process import own_rank, world_size
from .voice import as_exception, sendable


def spread(make: "Callable[..., DataLoader[Any]]", *args: Any, **kwargs: Any) -> "DataLoader[Any]":
    """The loader that make(*args, **kwargs) gives; its worker w loads on rank w % world, for all ranks.

    DataLoader gives batch b to worker b % num_workers, and each worker draws from random streams of its own. So
    a batch has the crops, flips and noise that it would have in one process. Every rank starts all the workers;
    those that load on another rank stay idle. A loader without workers, of an iterable data set, or of a class
    that iterates in its own way stays as it is: every rank loads all of it.
    """
    loader = make(*args, **kwargs)
    plain = type(loader).__iter__ is DataLoader.__iter__ and getattr(loader, "in_order", True)
    if (
        world_size() == 1
        or loader.num_workers == 0
        or not plain
        or isinstance(loader.dataset, IterableDataset)
    ):
        return loader
    return SpreadLoader(loader)


class SpreadLoader(DataLoader[Any]):
    """A DataLoader with another's settings, some of whose workers load on other ranks."""

    def __init__(self, loader: "DataLoader[Any]") -> None:
        vars(self).update(vars(loader))
        self.whole = loader
        self.worker_init_fn = OwnWorkers(loader.worker_init_fn, own_rank(), world_size())

    def __iter__(self) -> Any:
        return SpreadBatches(super().__iter__(), self) if world_size() > 1 else iter(self.whole)


class OwnWorkers:
    """A worker_init_fn after which the workers of other ranks load nothing."""

    def __init__(self, start: Callable[[int], None] | None, rank: int, world: int) -> None:
        self.start = start
        self.rank = rank
        self.world = world

    def __call__(self, worker: int) -> None:
        if self.start is not None:
            self.start(worker)
        if worker % self.world != self.rank:
            vars(fetch)["_MapDatasetFetcher"] = IdleFetcher  # in this worker's process alone


class IdleFetcher:
    """In place of torch/utils/data/_utils/fetch.py's fetcher, on a worker that loads on another rank."""

    def __init__(self, *settings: Any) -> None:
        pass

    def fetch(self, indices: Any) -> None:
        """Nothing; the batch comes from the rank that has it."""


class SpreadBatches:
    """One pass over a spread loader."""

    def __init__(self, batches: Iterator[Any], loader: SpreadLoader) -> None:
        self.batches = batches
        self.loader = loader
        self.number = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> "SpreadBatches":
        return self

    def __next__(self) -> Any:
        batch = error = None
        try:
            batch = next(self.batches)
        except StopIteration:  # on all ranks alike
            raise
        except Exception as raised:
            error = raised
        source = self.number % self.loader.num_workers % world_size()
        self.number += 1
        batch, error = from_rank(source, (batch, error and sendable(error)))
        if error is not None:
            try:
                raise as_exception(error)
            finally:
                del error  # it holds this frame, and torch is 5 s late to end a worker in a cycle
        pinned = self.loader.pin_memory and torch.cuda.is_available() and own_rank() != source
        return pin_memory.pin_memory(batch) if pinned else batch


def from_rank(source: int, value: Any) -> Any:
    """What one rank brings; its tensors travel by themselves."""
    if own_rank() != source:
        return receive(source)
    send(*pack(value))
    return value
