"""Whole models in files: a DataParallel goes in, and this script's wrapper comes out."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.loading import load_for_ranks
from torch import nn


@pytest.mark.parametrize("kind", [GraphDDP, ExactDDP])
def test_the_file_holds_a_data_parallel(kind: type[GraphDDP], tmp_path: Path) -> None:
    net = kind(nn.Linear(2, 2), dim=1).eval()
    net.best = 3  # type: ignore[assignment]  # scripts put such things there
    torch.save(net, tmp_path / "net.pt")
    found = torch.load(tmp_path / "net.pt", weights_only=False)
    assert type(found) is nn.DataParallel
    assert (found.best, found.training, found.module.training) == (3, False, False)
    assert torch.equal(found.module.weight, net.module.weight)
    assert vars(found).keys() == vars(nn.DataParallel(nn.Linear(2, 2))).keys() | {"best"}


def test_what_was_a_data_parallel_is_wrapped_again(tmp_path: Path) -> None:
    net = nn.DataParallel(nn.Linear(2, 2))
    net.best = 3  # type: ignore[assignment]
    torch.save({"net": net, "all": [net, (net.module, 1)], "epoch": 2}, tmp_path / "all.pt")
    found = load_for_ranks(tmp_path / "all.pt", weights_only=False)
    assert type(found["net"]) is GraphDDP
    assert found["all"][0] is found["net"]
    assert found["all"][1] == (found["net"].module, 1)
    assert (found["net"].best, found["epoch"]) == (3, 2)
    assert torch.equal(found["net"](torch.ones(1, 2)), net(torch.ones(1, 2)))


def test_states_are_loaded_as_ever(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "state.pt")
    assert sorted(load_for_ranks(tmp_path / "state.pt", "cpu")) == ["bias", "weight"]


def test_a_copy_stays_what_it_is() -> None:
    net = ExactDDP(nn.Linear(2, 2), dim=1)
    twin = copy.deepcopy(net)
    assert type(twin) is type(copy.copy(net)) is ExactDDP
    assert (twin.dim, copy.copy(net).module) == (1, net.module)
    assert twin.module.weight is not net.module.weight
