"""A sample's random numbers depend on seed, epoch and index, and on nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from dp2ddp.runtime.perturb.seeds import DREW, install_sample_streams

Numbers = dict[int, tuple[float, float, float]]


class Augmented(Dataset[Any]):
    """Sample i is i and one number from each of torch, random and numpy."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, torch.rand(()).item(), random.random(), float(numpy.random.rand())


@pytest.fixture
def streams() -> Iterator[None]:
    torch_state, python_state, numpy_state = (
        torch.get_rng_state(),
        random.getstate(),
        numpy.random.get_state(),
    )
    torch.manual_seed(0)
    taps = install_sample_streams(0)
    yield
    taps.undo()
    torch.set_rng_state(torch_state)
    random.setstate(python_state)
    numpy.random.set_state(numpy_state)


def epoch(loader: Any) -> Numbers:
    rows = [row for batch in loader for row in zip(*(column.tolist() for column in batch), strict=True)]
    return {index: numbers for index, *numbers in rows}


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"batch_size": 3, "shuffle": True}, id="another order"),
        pytest.param({"batch_size": 4, "num_workers": 2}, id="two workers"),
        pytest.param(
            {"batch_size": 4, "num_workers": 2, "persistent_workers": True}, id="persistent workers"
        ),
    ],
)
def test_the_same_numbers_however_it_is_loaded(options: Any) -> None:
    alone = DataLoader(Augmented(), batch_size=5)
    other = DataLoader(Augmented(), **options)
    assert [epoch(alone), epoch(alone)] == [epoch(other), epoch(other)]


@pytest.mark.usefixtures("streams")
def test_a_part_of_the_data_has_the_numbers_of_the_whole() -> None:
    whole = epoch(DataLoader(Augmented(), batch_size=5))
    part = epoch(DataLoader(Augmented(), batch_sampler=[[3, 4], [8]]))
    assert part == {index: whole[index] for index in (3, 4, 8)}


@pytest.mark.usefixtures("streams")
def test_epochs_and_samples_differ_also_with_a_new_loader_each_epoch() -> None:
    data = Augmented()
    first, second = epoch(DataLoader(data, batch_size=5)), epoch(DataLoader(data, batch_size=5))
    numbers = [number for each in (first, second) for row in each.values() for number in row]
    assert len(set(numbers)) == 2 * 10 * 3


@pytest.mark.usefixtures("streams")
def test_loading_leaves_the_scripts_streams_alone() -> None:
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    for _ in DataLoader(Augmented(), batch_size=5, generator=torch.Generator()):
        pass
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), numpy.random.get_state()[1].tolist())  # type: ignore[index]


@pytest.mark.usefixtures("streams")
def test_data_sets_that_load_several_at_once() -> None:
    subset = Subset(Augmented(), [5, 6])  # has __getitems__
    assert set(epoch(DataLoader(subset, batch_size=2))) == {5, 6}


def test_undo_takes_it_back() -> None:
    before = DataLoader.__iter__
    install_sample_streams(0).undo()
    assert DataLoader.__iter__ is before


class Synthetic(Dataset[Any]):
    """Made from its index: the same numbers whatever was drawn before."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        torch.manual_seed(index)
        random.seed(index)
        numpy.random.seed(index)
        return torch.rand(()).item(), random.random(), float(numpy.random.rand())


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(("dataset", "drew"), [(Augmented(), True), (Synthetic(), False)])
def test_which_streams_a_sample_hangs_on(dataset: Dataset[Any], drew: bool) -> None:
    fetcher: Any = _MapDatasetFetcher(dataset, True, list, False)  # type: ignore[no-untyped-call]
    fetcher.fetch([3, 4])
    assert getattr(fetcher, DREW) == (drew, drew, drew)
