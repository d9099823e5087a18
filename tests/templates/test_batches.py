"""Shards of a loader, put side by side, are the loader; without ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dp2ddp.templates import batches
from dp2ddp.templates.batches import own_rows, shard, without_rows
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

WORLDS = range(2, 9)
ShardOf = Callable[[DataLoader[Any], int, int], DataLoader[Any]]


@pytest.fixture
def shard_of(monkeypatch: pytest.MonkeyPatch) -> ShardOf:
    """The loader of one rank of so many, in this process; its batches are the own rows."""

    def make(whole: DataLoader[Any], rank: int, world: int) -> DataLoader[Any]:
        monkeypatch.setattr(batches, "own_rank", lambda: rank)
        monkeypatch.setattr(batches, "world_size", lambda: world)
        monkeypatch.setattr(batches, "all_ranks_are_here", lambda: True)
        monkeypatch.setattr(
            batches, "see_whole", lambda batch, sizes: batch if sizes[rank] else without_rows(batch)
        )
        return shard(lambda: whole)

    return make


def rows_of(loader: Any) -> list[list[float]]:
    return [batch[0].tolist() for batch in loader]


def loader(rows: int = 23, batch_size: int = 5, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(float(rows))), batch_size=batch_size, **options)


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("rows", range(1, 20))
def test_own_rows_are_torch_chunks(rows: int, world: int) -> None:
    chunks = torch.arange(rows).chunk(world)
    for rank in range(world):
        wanted = chunks[rank].tolist() if rank < len(chunks) else []
        assert own_rows(list(range(rows)), rank, world) == wanted


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="in order"),
        pytest.param({"shuffle": True}, id="shuffled"),
        pytest.param({"shuffle": True, "drop_last": True}, id="without the last batch"),
        pytest.param({"sampler": WeightedRandomSampler([1.0, 2.0] * 5, 13)}, id="weighted"),
        pytest.param({"batch_sampler": BatchSampler(range(7), 3, False), "batch_size": 1}, id="own batches"),
    ],
)
def test_shards_side_by_side_are_the_batches_of_two_epochs(
    shard_of: ShardOf, options: dict[str, Any], world: int
) -> None:
    def two_epochs(make: Any) -> list[list[float]]:
        torch.manual_seed(1)
        one = make(loader(**options))
        return rows_of(one) + rows_of(one) + [[float(torch.rand(()))]]

    wanted = two_epochs(lambda one: one)
    shards = [two_epochs(lambda one, r=rank: shard_of(one, r, world)) for rank in range(world)]
    assert [sum(parts, []) for parts in zip(*(s[:-1] for s in shards), strict=True)] == wanted[:-1]
    assert all(s[-1] == wanted[-1] for s in shards), "the script's random stream moved on differently"


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_and_early_ends_change_nothing(shard_of: ShardOf, workers: int) -> None:
    torch.manual_seed(1)
    whole = loader(shuffle=True, num_workers=workers, persistent_workers=True)
    first, wanted = next(iter(whole))[0].tolist(), rows_of(whole)
    found = []
    for rank in range(2):
        torch.manual_seed(1)
        part = shard_of(loader(shuffle=True, num_workers=workers, persistent_workers=True), rank, 2)
        found.append([next(iter(part))[0].tolist(), *rows_of(part)])
    assert [a + b for a, b in zip(*found, strict=True)] == [first, *wanted]


def test_two_passes_at_once_do_not_mix(shard_of: ShardOf) -> None:
    part = shard_of(loader(rows=3, batch_size=2), 1, 2)
    assert [(a[0].tolist(), b[0].tolist()) for a, b in zip(part, part, strict=True)] == [
        ([1.0], [1.0]),
        ([], []),
    ]


def test_it_answers_as_the_whole_loader(shard_of: ShardOf) -> None:
    whole = loader(shuffle=True, drop_last=True, timeout=0)
    part = shard_of(whole, 1, 4)
    assert isinstance(part, DataLoader)
    assert (len(part), part.batch_size, part.drop_last) == (4, 5, True)
    assert part.dataset is whole.dataset
    assert part.sampler is whole.sampler
    assert part.batch_sampler is whole.batch_sampler
    assert len(iter(part)) == 4  # type: ignore[arg-type]


class Augmented(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)[0], torch.rand(()), random.random()


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_on_different_ranks_are_augmented_differently(shard_of: ShardOf, workers: int) -> None:
    drawn = []
    for rank in range(3):
        torch.manual_seed(1)
        random.seed(1)
        data = Augmented(torch.arange(6.0))
        for _, noise, other in shard_of(DataLoader(data, 6, num_workers=workers), rank, 3):
            drawn += noise.tolist() + other.tolist()
        assert (float(torch.rand(())), random.random()) == ends(workers)
    assert len(set(drawn)) == 12


def ends(workers: int) -> tuple[float, float]:
    """What the script draws after a pass that draws only the worker's base seed."""
    torch.manual_seed(1)
    random.seed(1)
    torch.empty((), dtype=torch.int64).random_()
    return float(torch.rand(())), random.random()


def test_a_batch_without_rows_keeps_its_form() -> None:
    batch = [torch.ones(1, 3), ("name",), {"y": torch.ones(1), "n": [4]}, torch.tensor(2.0)]
    x, names, more, number = without_rows(batch)
    assert (x.shape, names, more["y"].shape, more["n"]) == (torch.Size([0, 3]), (), torch.Size([0]), [])
    assert number == 2.0


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(DataLoader(Stream(), 2), id="iterable"),
        pytest.param(loader(batch_size=None), id="no batches"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_sharded_is_refused_with_the_alternative(
    shard_of: ShardOf, whole: DataLoader[Any]
) -> None:
    with pytest.raises(TypeError, match="Let every rank load the whole batches instead"):
        shard_of(whole, 0, 2)


def test_a_world_of_one_keeps_its_loader() -> None:
    whole = loader()
    assert shard(lambda: whole) is whole
