"""What NCCL refuses is refused on virtual devices, though gloo would take it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dp2ddp.runtime.virtual_cuda.distributed import Nccl
from dp2ddp.runtime.virtual_cuda.places import HOST, Machine

from .conftest import Install

CPU = "No backend type associated with device type cpu"


@pytest.fixture
def alone(virtual: Install) -> Any:
    """A group of one rank; the backend is the test's."""
    virtual(2)

    def begin(backend: str | None) -> None:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)

    yield begin
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("backend", "refuses"), [("nccl", True), (None, False), ("cpu:gloo,cuda:nccl", False), ("gloo", False)]
)
def test_a_tensor_on_the_cpu(alone: Any, backend: str | None, refuses: bool) -> None:
    alone(backend)
    if refuses:
        with pytest.raises(RuntimeError, match=CPU):
            dist.all_reduce(torch.ones(2))
        with pytest.raises(RuntimeError, match=CPU):
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    else:
        dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(2).cuda())
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1).cuda())
    dist.all_gather_object([None], "objects travel by the GPU")
    dist.barrier()


def test_a_gloo_group_beside_nccl_takes_what_it_takes(alone: Any) -> None:
    alone("nccl")
    dist.all_reduce(torch.ones(2), group=dist.new_group(backend="gloo"))
    with pytest.raises(RuntimeError, match=CPU):
        dist.all_reduce(torch.ones(2), group=dist.new_group())


# what torch 2.14 renamed is still there by its old name, which warns
GATHERS = [name for name in ("all_gather_into_tensor", "all_gather_single") if hasattr(dist, name)]
SCATTERS = {"all_gather_into_tensor": "reduce_scatter_tensor", "all_gather_single": "reduce_scatter_single"}


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_one_tensor_of_as_many_numbers(alone: Any, backend: str, name: str) -> None:
    """Accelerate gathers a batch into a row of numbers where the backend is NCCL."""
    alone(backend)
    gather, scatter = getattr(dist, name), getattr(dist, SCATTERS[name])
    rows, numbers = torch.arange(6.0).view(3, 2).cuda(), torch.zeros(6).cuda()
    if backend == "gloo":
        with pytest.raises(RuntimeError, match="invalid tensor size"):
            gather(numbers, rows)
        return
    with pytest.raises(RuntimeError, match=CPU):
        gather(numbers.cpu(), rows.cpu())
    gather(numbers, rows)
    assert numbers.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    rows.zero_()
    scatter(rows, numbers)
    assert rows.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


@pytest.mark.parametrize(("places", "refused"), [((0, 1), 0), ((0, 0), 1), ((HOST, HOST), 0)])
def test_two_ranks_on_one_device(
    monkeypatch: pytest.MonkeyPatch, places: tuple[int, int], refused: int
) -> None:
    store, found, rank = dist.HashStore(), [], threading.local()
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(dist, "get_rank", lambda: rank.own)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    for rank.own, place in enumerate(places):
        nccl = Nccl(Machine(2))
        nccl._groups["all"] = "cpu:gloo,cuda:nccl"
        try:
            nccl._check("all", place)
        except dist.DistBackendError as error:
            found.append(str(error))
    assert len(found) == refused
    assert all("rank 1 and rank 0 both on CUDA device 0" in each for each in found)
