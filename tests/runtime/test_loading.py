"""torch.load puts tensors where map_location says."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn

from .conftest import Install


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("map_location", "device"),
    [
        pytest.param("cuda:1", "cuda:1", id="name"),
        pytest.param("cuda", "cuda:0", id="name without index"),
        pytest.param(torch.device("cuda:1"), "cuda:1", id="device"),
        pytest.param("cpu", "cpu", id="cpu"),
        pytest.param(lambda storage, location: storage, "cpu", id="as it is"),
        pytest.param(lambda storage, location: storage.cuda(1), "cuda:1", id="function that moves"),
        pytest.param({"cpu": "cuda:1"}, "cuda:1", id="dictionary"),
    ],
)
def test_map_location(virtual: Install, map_location: Any, device: str) -> None:
    virtual(2)
    loaded = torch.load(saved({"a": torch.ones(2).cuda(), "b": nn.Parameter(torch.ones(1))}), map_location)
    assert {str(value.device) for value in loaded.values()} == {device}


def test_without_map_location_it_goes_with_every_device(virtual: Install) -> None:
    virtual(2)
    loaded = torch.load(saved(torch.ones(2).cuda(1)))
    assert (loaded + torch.ones(2, device="cuda:1")).tolist() == [2, 2]
    assert (loaded + torch.ones(2)).tolist() == [2, 2]


def test_an_optimizer_resumes_on_the_device_of_its_parameters(virtual: Install) -> None:
    virtual(2)

    def train(state: Any) -> Any:
        parameter = nn.Parameter(torch.ones(2, device="cuda:1"))
        optimizer = torch.optim.Adam([parameter])
        if state is not None:
            optimizer.load_state_dict(state)
        (parameter * 2).sum().backward()
        optimizer.step()
        assert optimizer.state[parameter]["exp_avg"].device == torch.device("cuda:1")
        return optimizer.state_dict()

    assert train(torch.load(saved(train(None))))["state"][0]["step"] == 2
