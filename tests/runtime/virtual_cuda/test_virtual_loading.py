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
        pytest.param({"cpu": "cuda:1", "cuda:0": "cuda:1"}, "cuda:1", id="dictionary"),
    ],
)
def test_map_location(virtual: Install, map_location: Any, device: str) -> None:
    virtual(2)
    loaded = torch.load(saved({"a": torch.ones(2).cuda(), "b": nn.Parameter(torch.ones(1))}), map_location)
    assert {str(value.device) for value in loaded.values()} == {device}


def test_without_map_location_it_is_where_it_was(virtual: Install) -> None:
    virtual(2)
    shared = torch.ones(2, device="cuda:1")
    values = [torch.zeros(1), shared, nn.Parameter(torch.ones(1, device="cuda:0")), shared[:1]]
    loaded = torch.load(saved(values))
    assert [str(value.device) for value in loaded] == ["cpu", "cuda:1", "cuda:0", "cuda:1"]


def test_a_whole_wrapped_model_runs_after_loading(virtual: Install) -> None:
    virtual(2)
    model = torch.load(saved(nn.DataParallel(nn.Linear(2, 2).cuda())), weights_only=False)
    assert model(torch.ones(3, 2)).shape == (3, 2)


def test_functions_and_dictionaries_are_told_where_it_was(virtual: Install) -> None:
    virtual(2)
    told: list[str] = []
    torch.load(saved(torch.ones(1, device="cuda:1")), lambda storage, location: told.append(location))
    assert told == ["cuda:1"]
    moved = torch.load(saved([torch.ones(1).cuda(0), torch.ones(1).cuda(1)]), {"cuda:1": "cuda:0"})
    assert [str(value.device) for value in moved] == ["cuda:0", "cuda:0"]


def test_files_can_be_read_where_there_is_no_device(virtual: Install) -> None:
    installation = virtual(2)
    file = saved({"weight": nn.Linear(2, 2).cuda(1).weight})
    installation.taps.undo()
    assert torch.load(file)["weight"].device.type == "cpu"


def test_a_file_from_elsewhere_goes_with_every_device(virtual: Install) -> None:
    file = saved(torch.ones(2))
    virtual(2)
    loaded = torch.load(file)
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


def test_what_is_registered_with_torch_comes_before_where_it_was(
    virtual: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on GPUs: torch.serialization.register_package, also for the place that map_location names."""
    virtual(3)
    monkeypatch.setattr(torch.serialization, "_package_registry", [*torch.serialization._package_registry])
    torch.serialization.register_package(
        0,
        lambda storage: None,
        lambda storage, location: storage.cuda(2) if location.startswith("cuda") else None,
    )
    values = [torch.ones(1), torch.ones(1, device="cuda:1")]

    def devices(*map_location: Any) -> list[str]:
        return [str(value.device) for value in torch.load(saved(values), *map_location)]

    assert devices() == ["cpu", "cuda:2"]
    assert devices("cuda:0") == ["cuda:2", "cuda:2"]
    assert devices("cpu") == ["cpu", "cpu"]
    assert devices(lambda storage, location: storage.cuda(1)) == ["cuda:1", "cuda:1"]
